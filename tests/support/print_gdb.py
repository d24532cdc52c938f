# SPDX-License-Identifier: MIT
# ruff: noqa: ANN001, ANN201, ANN204, PTH123
# mypy: ignore-errors
"""For gdb's own Python: print expressions at each call of some functions, and after each return.

    gdb -nx -batch -x print_gdb.py PROGRAM

PLAN in the environment names a JSON file: {"at": {FUNCTION: [WHERE, [EXPRESSION...]]},
"back": {FUNCTION: [EXPRESSION...]}, "words": ARGUMENTS, "out": FILE, "apart": whether
addresses vary}. In ``back``, $
stands for the value that is returned. The file gets {FUNCTION: [[VALUE...]...]} for both.
"""

import json
import os

import gdb

TEXT = 63
"""Bytes of a string that are compared."""
ENDS_STRING = 0


def shown(value):
    """A value as JSON: a number, a name, a text, or None for what cannot be read."""
    try:
        kind = value.type.strip_typedefs()
        code = kind.code
        if code in (gdb.TYPE_CODE_ENUM, gdb.TYPE_CODE_BOOL):
            return str(value).rpartition("::")[2]
        if code == gdb.TYPE_CODE_ARRAY or (code == gdb.TYPE_CODE_PTR and is_char(kind.target())):
            if code == gdb.TYPE_CODE_PTR and not int(value):
                return None
            low, high = kind.range() if code == gdb.TYPE_CODE_ARRAY else (0, TEXT)
            held = bytearray()
            for number in range(low, min(high, TEXT) + 1):
                one = int(value[number]) & 0xFF
                if one == ENDS_STRING:
                    break
                held.append(one)
            return held[:TEXT].decode("utf-8", "backslashreplace")
        return int(value)
    except gdb.MemoryError:
        return None


def is_char(kind):
    kind = kind.strip_typedefs().unqualified()
    return kind.code == gdb.TYPE_CODE_INT and kind.sizeof == 1 and kind.name == "char"


def evaluated(text):
    try:
        value = gdb.parse_and_eval(text)
        if value.is_optimized_out:
            return "<optimized out>"
        return shown(value)
    except gdb.error:
        return None


class Finish(gdb.FinishBreakpoint):
    """Notes what `finish` would print."""

    def __init__(self, name, expressions):
        super().__init__(gdb.newest_frame(), internal=True)
        self.name, self.expressions = name, expressions

    def stop(self):
        value = self.return_value
        if value is not None:
            gdb.set_convenience_variable("back", value)
            texts = [one.partition(":")[0].replace("$", "$back", 1) for one in self.expressions]
            out["back"][self.name].append([evaluated(one) for one in texts])
        return False


with open(os.environ["PLAN"]) as file:
    plan = json.load(file)
out = {"at": {name: [] for name in plan["at"]}, "back": {name: [] for name in plan["back"]}}
gdb.execute("set pagination off")
gdb.execute("set confirm off")
gdb.execute(f"set disable-randomization {'off' if plan['apart'] else 'on'}")
entries = {}
for name in {**plan["at"], **plan["back"]}:
    where, expressions = plan["at"].get(name, (f"*{name}", []))
    entries[gdb.Breakpoint(where, internal=True).number] = name
stopped = []
gdb.events.stop.connect(stopped.append)
gdb.execute(f"run {plan['words']} < input > printed", to_string=True)
while stopped:
    event = stopped.pop()
    for breakpoint in getattr(event, "breakpoints", ()):
        name = entries.get(breakpoint.number)
        if name in plan["at"]:
            out["at"][name].append([evaluated(one) for one in plan["at"][name][1]])
        if name in plan["back"]:
            Finish(name, plan["back"][name])
    stopped.clear()
    gdb.execute("continue", to_string=True)
with open(plan["out"], "w") as file:
    json.dump(out, file)
