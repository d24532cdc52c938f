# SPDX-License-Identifier: MIT
# ruff: noqa: ANN001, ANN201, PTH123
# mypy: ignore-errors
"""For gdb's own Python: the backtrace at each change of a variable.

    gdb -nx -batch -x watch_stack_gdb.py PROGRAM

PLAN in the environment names a JSON file: {"type": of the variable, "symbol": its name, "words":
ARGUMENTS, "out": FILE}. The file gets [[FRAME...]...], innermost first, without inlined calls and
tail calls: "NAME+OFFSET" of the program's functions, "*" of others.
"""

import json
import os
import re

import gdb

with open(os.environ["PLAN"]) as file:
    plan = json.load(file)
out = []


def text(frame):
    """The function of a frame, as ftpatch writes it; return addresses are behind calls."""
    pc = frame.pc()
    if gdb.solib_name(pc):
        return "*"
    back = frame.newer() is not None and frame.newer().type() != gdb.SIGTRAMP_FRAME
    told = gdb.execute(f"info symbol {pc - back:#x}", to_string=True)
    found = re.match(r"(\S+)(?: \+ (\d+))? in section", told)
    return f"{found[1]}+{int(found[2] or 0) + back:#x}" if found else "*"


class Watch(gdb.Breakpoint):
    """The watchpoint."""

    def stop(self):
        """Keep the backtrace, and go on."""
        frame, calls = gdb.newest_frame(), []
        while frame is not None:
            if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
                calls.append(text(frame))
            frame = frame.older()
        out.append(calls)
        return False


for line in (
    "pagination off",
    "confirm off",
    "print thread-events off",
    "startup-with-shell on",
    "debuginfod enabled off",
    "backtrace past-main on",
    "backtrace past-entry on",
    "backtrace limit 4096",
):
    gdb.execute("set " + line, to_string=True)
gdb.execute("handle all nostop noprint pass", to_string=True)
gdb.execute("break main", to_string=True)
gdb.execute(f"run {plan['words']} </dev/null >/dev/null", to_string=True)
at = int(gdb.parse_and_eval(f"(unsigned long)&{plan['symbol']}"))
Watch(f"*({plan['type']} *){at:#x}", gdb.BP_WATCHPOINT, gdb.WP_WRITE, internal=True)
gdb.execute("continue", to_string=True)
with open(plan["out"], "w") as file:
    json.dump(out, file)
