# SPDX-License-Identifier: MIT
# ruff: noqa: ANN001, ANN201, PTH123
# mypy: ignore-errors
"""For gdb's own Python: the backtrace at each hit of some places of a program that qemu runs.

    gdb-multiarch -nx -batch -x stack_gdb_qemu.py PROGRAM

PLAN in the environment names a JSON file: {"at": [LINK ADDRESS...], "socket": of qemu, "leaf": the
link address of that function, "texts": {PATH: link address of .text}, "blind": whether
gdb takes no notice of signals' frames, "out": FILE}. The file gets
[[AT, [[PATH, LINK ADDRESS]...]]...], innermost first, the program's path being empty; 0 is a
signal's frame.
"""

import json
import os
import re

import gdb

with open(os.environ["PLAN"]) as file:
    plan = json.load(file)


def loaded():
    """Where the .text of each library is in memory, by path."""
    text = gdb.execute("info sharedlibrary", to_string=True)
    return {path: int(low, 16) for low, path in re.findall(r"^(0x\w+) .* (/\S+)$", text, re.M)}


def linked(pc):
    """The file at an address, and the link address there."""
    path = gdb.solib_name(pc)
    if path is None:
        return ["", pc - bias]
    return [path, pc - loaded()[path] + plan["texts"][path]]


gdb.execute("set pagination off")
gdb.execute("set confirm off")
gdb.execute("set sysroot /")
gdb.execute("set backtrace past-main on")
gdb.execute("set backtrace past-entry on")
gdb.execute("set backtrace limit 4096")
gdb.execute("handle all nostop noprint pass", to_string=True)
gdb.execute(f"target remote {plan['socket']}", to_string=True)
bias = int(gdb.parse_and_eval("(unsigned long)&leaf")) - plan["leaf"]
known = {at + bias: at for at in plan["at"]}
for address in known:
    gdb.Breakpoint(f"*{address:#x}", internal=True)
out = []
while True:
    gdb.execute("continue", to_string=True)
    if not gdb.selected_inferior().pid:
        break
    frame, calls = gdb.newest_frame(), []
    at = known[frame.pc()]
    while frame is not None and frame.pc():
        if plan["blind"] and frame.name() is None and gdb.solib_name(frame.pc()) is None:
            calls.append(["", 0])
            break  # a signal's frame, which gdb does not know here
        if frame.type() == gdb.SIGTRAMP_FRAME:
            calls.append(["", 0])
        elif frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            calls.append(linked(frame.pc()))
        frame = frame.older()
    out.append([at, calls])
with open(plan["out"], "w") as file:
    json.dump(out, file)
