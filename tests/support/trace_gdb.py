# SPDX-License-Identifier: MIT
"""A call tree as gdb sees it: breakpoints at entries, and where the calls will return to.

No code of ftpatch, and none of the tracer: the program is the one without it. Run by gdb's own
Python, which has the addresses as ``PLACES``, and where to write as ``TARGET``. Programs of other
machines are run by qemu-user, which gdb talks to through ``SOCKET``.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from elftools.elf.elffile import ELFFile

from tests.support.command import PATIENCE

__all__ = ["tree_by_gdb"]

LINKS = {"arm64": "x30", "riscv64": "ra", "ppc64le": "lr", "s390x": "r14", "arm": "lr"}
"""Registers that hold where a function returns to, where that is not on the stack."""
MARKED = ("arm",)
"""Where bit 0 of an address says in which instruction set its code is."""

SCRIPT = '''
import gdb, json, time

lines, stack, returns = [], [], {}

def register(name):
    return int(gdb.parse_and_eval("(unsigned long)$" + name))

def word(address):
    size = gdb.lookup_type("long").sizeof
    return int.from_bytes(bytes(gdb.selected_inferior().read_memory(address, size)), "little")

def back_of(sp):
    """Where the function that begins here will return to."""
    return register(LINK) & ~MARK if LINK else word(sp)

def close(sp):
    """All frames below this stack pointer have returned: the innermost first. On x86 what they
    returned to is off the stack as well."""
    while stack and (stack[-1][1] <= sp if LINK else stack[-1][1] < sp):
        lines.append(["exit", stack.pop()[0]])

class Return(gdb.Breakpoint):
    def stop(self):
        close(register("sp"))
        return False

class Entry(gdb.Breakpoint):
    name = ""
    def stop(self):
        sp = register("sp")
        back = back_of(sp)
        # What lies where this call does was left, by a jump or an exception, but for a function
        # that ends in a tail call: it and this one return to the same place.
        while stack and (stack[-1][1] < sp or (stack[-1][1] == sp and stack[-1][2] != back)):
            lines.append(["exit", stack.pop()[0]])
        lines.append(["entry", self.name])
        stack.append((self.name, sp, back))
        if back not in returns:
            returns[back] = Return("*%#x" % back, internal=True)
        return False

gdb.execute("set pagination off")
gdb.execute("set confirm off")
gdb.execute("set startup-with-shell off")
gdb.execute("set disable-randomization on")
gdb.execute("handle SIGUSR1 nostop noprint pass")
if SOCKET:
    end = time.monotonic() + PATIENCE
    while True:  # it may not be there yet, or there and not listened to
        try:
            gdb.execute("target remote " + SOCKET, to_string=True)
            break
        except gdb.error:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)
else:
    gdb.execute("starti", to_string=True)
# Where the program was really loaded: by its entry, as the kernel told it.
vector = gdb.execute("info auxv", to_string=True).splitlines()
(entry,) = [line.split()[-1] for line in vector if "AT_ENTRY" in line]
moved = int(entry, 16) - START
for name, address in PLACES.items():
    Entry("*%#x" % (address + moved), internal=True).name = name
gdb.execute("continue", to_string=True)
with open(TARGET, "w") as file:
    json.dump(lines, file)
gdb.execute("quit")
'''


def tree_by_gdb(
    program: Path, places: dict[str, int], arch: str, emulator: Sequence[str]
) -> list[tuple[str, str]]:
    """("entry" or "exit", function) in order; a call that is left has its exit where that shows.
    ``places``: where to stop on entry, before anything is pushed, by name; ``emulator``: what runs
    the program, if it needs anything."""
    script = program.with_suffix(".gdb.py")
    target = program.with_suffix(".gdb.json")
    socket = program.with_suffix(".gdb.socket")
    with program.open("rb") as file:
        start = ELFFile(file)["e_entry"]
    head = f"PLACES = {places!r}\nTARGET = {str(target)!r}\nSTART = {start}\n"
    head += f"LINK = {LINKS.get(arch, '')!r}\n"
    head += f"MARK = {int(arch in MARKED)}\n"
    head += f"PATIENCE = {PATIENCE / 2}\n"
    script.write_text(f"{head}SOCKET = {str(socket) if emulator else ''!r}\n{SCRIPT}")
    gdb = "gdb-multiarch" if emulator else "gdb"
    command = [gdb, "-q", "-batch", "-nx", "-x", str(script), str(program)]
    with ExitStack() as stack:
        if emulator:
            waiting = [*emulator, "-g", str(socket), str(program)]
            process = stack.enter_context(subprocess.Popen(waiting, stdout=subprocess.DEVNULL))
            stack.callback(process.kill)
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    assert target.is_file(), done.stdout + done.stderr
    return [(kind, name) for kind, name in json.loads(target.read_text())]
