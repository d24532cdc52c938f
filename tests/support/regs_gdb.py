# SPDX-License-Identifier: MIT
"""Registers as gdb sees them: at the first instruction of functions, and where each call returns.

The program is the traced one, before it calls the tracer, and after that has returned: so even
addresses of stacks are the same. Run by gdb's own Python.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.support.command import PATIENCE

__all__ = ["FD", "registers_by_gdb"]

FD = 9
"""The descriptor that a program's stub writes to."""
SCRIPT = """
import gdb, json, time

seen, returns = [], {}

def value(name):
    size = gdb.lookup_type("long").sizeof
    return int(gdb.parse_and_eval("$" + name)) & (1 << 8 * size) - 1

def registers():
    return {name: value(name) for name in NAMES}

def word(address):
    size = gdb.lookup_type("long").sizeof
    return int.from_bytes(bytes(gdb.selected_inferior().read_memory(address, size)), "little")

class Return(gdb.Breakpoint):
    def stop(self):
        seen.append([1, "", registers()])
        return False

class After(gdb.Breakpoint):
    name = ""
    def stop(self):
        seen.append([2, self.name, registers()])
        return False

class Entry(gdb.Breakpoint):
    name = ""
    def stop(self):
        seen.append([0, self.name, registers()])
        own = () if "rsp" in NAMES else ("r14",)  # of s390x
        links = [name for name in ("x30", "ra", "lr", *own) if name in NAMES]
        back = value(links[0]) if links else word(value("sp"))
        back &= ~("lr" in NAMES)  # of Thumb
        if back not in returns:
            returns[back] = Return("*%#x" % back, internal=True)
        return False

gdb.execute("set pagination off")
gdb.execute("set confirm off")
gdb.execute("set startup-with-shell off")
for name, address in PLACES.items():
    Entry("*%#x" % address, internal=True).name = name
for name, address in AFTER.items():
    After("*%#x" % address, internal=True).name = name
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
    gdb.execute("continue", to_string=True)
else:
    gdb.execute("run", to_string=True)
with open(TARGET, "w") as file:
    json.dump(seen, file)
gdb.execute("quit")
"""
Seen = list[tuple[int, str, dict[str, int]]]
"""(0 at an entry, 1 at a return, 2 behind a site; the function, but for a return; registers by
gdb's names)."""


def registers_by_gdb(
    program: Path,
    places: dict[str, int],
    names: Sequence[str],
    emulator: Sequence[str],
    after: Mapping[str, int] | None = None,
) -> tuple[Seen, bytes]:
    """Registers at entries and returns, in order, and what the program wrote to FD. ``places``:
    link addresses of functions, by name, which the program is loaded at; ``emulator``: what runs
    it, if it needs anything; ``after``: addresses behind sites."""
    script, target = program.with_suffix(".gdb.py"), program.with_suffix(".gdb.json")
    socket, said = program.with_suffix(".gdb.socket"), program.with_suffix(".said")
    head = f"PLACES = {places!r}\nTARGET = {str(target)!r}\nNAMES = {list(names)!r}\n"
    head += f"AFTER = {dict(after or {})!r}\n"
    head += f"PATIENCE = {PATIENCE / 2}\nSOCKET = {str(socket) if emulator else ''!r}\n"
    script.write_text(head + SCRIPT)
    gdb = "gdb-multiarch" if emulator else "gdb"
    command = [gdb, "-q", "-batch", "-nx", "-x", str(script), str(program)]
    opened = ["sh", "-c", f'exec {FD}>"$0" "$@"', str(said)]
    with ExitStack() as stack:
        if emulator:
            waiting = [*opened, *emulator, "-g", str(socket), str(program)]
            process = stack.enter_context(subprocess.Popen(waiting, stdout=subprocess.DEVNULL))
            stack.callback(process.kill)
        else:
            command = [*opened, *command]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    assert target.is_file(), done.stdout + done.stderr
    seen: Seen = [(kind, name, held) for kind, name, held in json.loads(target.read_text())]
    return seen, said.read_bytes()
