"""A call tree as gdb sees it: breakpoints at entries, and where the calls will return to.

No code of ftpatch, and none of the tracer: the program is the one without it. Run by gdb's own
Python, which has the addresses as ``PLACES``, and where to write as ``TARGET``.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

__all__ = ["tree_by_gdb"]

SCRIPT = '''
import gdb, json

lines, stack, returns = [], [], {}

def register(name):
    return int(gdb.parse_and_eval("(unsigned long)$" + name))

def word(address):
    return int.from_bytes(bytes(gdb.selected_inferior().read_memory(address, 8)), "little")

def close(sp):
    """All frames below this stack pointer have returned: the innermost first."""
    while stack and stack[-1][1] < sp:
        lines.append(["exit", stack.pop()[0]])

class Return(gdb.Breakpoint):
    def stop(self):
        close(register("sp"))
        return False

class Entry(gdb.Breakpoint):
    name = ""
    def stop(self):
        sp = register("sp")
        lines.append(["entry", self.name])
        stack.append((self.name, sp))
        back = word(sp)
        if back not in returns:
            returns[back] = Return("*%#x" % back, internal=True)
        return False

gdb.execute("set pagination off")
gdb.execute("set confirm off")
gdb.execute("set startup-with-shell off")
gdb.execute("set disable-randomization on")
gdb.execute("handle SIGUSR1 nostop noprint pass")
gdb.execute("starti", to_string=True)
moved = 0
if RELATIVE:
    # The first mapping of the file is where its first segment, which begins at 0, was loaded.
    pid = gdb.selected_inferior().pid
    with open("/proc/%d/maps" % pid) as maps:
        lines_of = [line for line in maps if line.rstrip().endswith(PROGRAM)]
    moved = int(lines_of[0].split("-")[0], 16)
for name, address in PLACES.items():
    Entry("*%#x" % (address + moved), internal=True).name = name
gdb.execute("continue", to_string=True)
with open(TARGET, "w") as file:
    json.dump(lines, file)
gdb.execute("quit")
'''


def tree_by_gdb(program: Path, places: dict[str, int], *, relative: bool) -> list[tuple[str, str]]:
    """("entry" or "exit", function) in order. ``places``: where to stop on entry, before anything
    is pushed, by name; ``relative``: the program is loaded anywhere (PIE)."""
    script = program.with_suffix(".gdb.py")
    target = program.with_suffix(".gdb.json")
    head = f"PLACES = {places!r}\nPROGRAM = {str(program)!r}\nTARGET = {str(target)!r}\n"
    script.write_text(f"{head}RELATIVE = {relative}\n{SCRIPT}")
    command = ["gdb", "-q", "-batch", "-nx", "-x", str(script), str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert target.is_file(), done.stdout + done.stderr
    return [(kind, name) for kind, name in json.loads(target.read_text())]
