# SPDX-License-Identifier: MIT
# ruff: noqa: ANN001, ANN201, PTH123
# mypy: ignore-errors
"""For gdb's own Python: the backtrace at each hit of some places.

    gdb -nx -batch -x stack_gdb.py PROGRAM

PLAN in the environment names a JSON file: {"at": [LINK ADDRESS...], "base": of the PROGRAM's link
addresses, "words": ARGUMENTS, "out": FILE}. The file gets [[AT, [[PATH, LINK ADDRESS]...]]...],
innermost first, without inlined calls and tail calls.
"""

import json
import os

import gdb

with open(os.environ["PLAN"]) as file:
    plan = json.load(file)


def mapped():
    """Where each file is in memory: (start, end, path)."""
    rows = []
    with open(f"/proc/{gdb.selected_inferior().pid}/maps") as maps:
        for line in maps:
            words = line.split(None, 5)
            if len(words) == 6 and words[5].startswith("/"):
                low, high = (int(part, 16) for part in words[0].split("-"))
                rows.append((low, high, int(words[2], 16), words[5].strip()))
    return rows


def linked(rows, pc):
    """The file at an address, and the link address there; all begin at link address 0."""
    for low, high, _, path in rows:
        if low <= pc < high:
            first = min(start for start, _, _, other in rows if other == path)
            return [path, pc - first + plan["base"] * (path == rows[0][3])]
    return ["", pc]


gdb.execute("set pagination off")
gdb.execute("set confirm off")
gdb.execute("set backtrace past-main on")
gdb.execute("set backtrace past-entry on")
gdb.execute("set backtrace limit 4096")
gdb.execute("handle all nostop noprint pass", to_string=True)
gdb.execute(f"starti {plan['words']} > printed", to_string=True)
start = min(low for low, _, _, path in mapped() if path == os.path.realpath(plan["program"]))
known = {}
for at in plan["at"]:
    address = start + at - plan["base"]
    known[address] = at
    gdb.Breakpoint(f"*{address:#x}", internal=True)
out = []
while True:
    gdb.execute("continue", to_string=True)
    if not gdb.selected_inferior().pid:
        break
    frame, calls, rows = gdb.newest_frame(), [], mapped()
    at = known[frame.pc()]
    while frame is not None:
        if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            calls.append(linked(rows, frame.pc()))
        frame = frame.older()
    out.append([at, calls])
with open(plan["out"], "w") as file:
    json.dump(out, file)
