# SPDX-License-Identifier: MIT
"""Accesses to variables as gdb counts them, with the same breakpoints of the processor.

No code of ftpatch: the program is the one without watches. Run by gdb's own Python.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.command import PATIENCE

__all__ = ["Place", "accesses_by_gdb"]

Place = tuple[str, int, int, bool]
"""Symbol, offset, length (bytes), and whether reads count too; else changes do."""
SCRIPT = """
import gdb, json

TYPES = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long"}
hits = []

class Watch(gdb.Breakpoint):
    number_of_ours = 0
    def stop(self):
        if CONDITION and not int(gdb.parse_and_eval(CONDITION)):
            return False
        hits.append([self.number_of_ours, gdb.selected_frame().name() or ""])
        return False

def set_up():
    for number, (symbol, offset, length, reads) in enumerate(PLACES):
        at = int(gdb.parse_and_eval("(unsigned long)&%s" % symbol)) + offset
        kind = gdb.WP_ACCESS if reads else gdb.WP_WRITE
        watch = Watch("*(%s *)%#x" % (TYPES[length], at), gdb.BP_WATCHPOINT, kind, internal=True)
        watch.number_of_ours = number

for line in ("pagination off", "confirm off", "print thread-events off", "startup-with-shell off",
             "debuginfod enabled off", "disable-randomization on"):
    gdb.execute("set " + line, to_string=True)
gdb.execute("break main", to_string=True)
gdb.execute("run", to_string=True)
set_up()
gdb.execute("continue", to_string=True)
with open(TARGET, "w") as file:
    json.dump(hits, file)
"""


def accesses_by_gdb(
    program: Path, args: Sequence[str], places: Sequence[Place], condition: str = ""
) -> Counter[tuple[int, str]]:
    """How often each function came to each place, from the start of main on; with a ``condition``,
    while that held. Skips without gdb."""
    if shutil.which("gdb") is None:
        pytest.skip("no gdb")
    target, script = program.with_suffix(".hits"), program.with_suffix(".gdb.py")
    given = f"PLACES = {list(places)!r}\nTARGET = {str(target)!r}\nCONDITION = {condition!r}\n"
    script.write_text(given + SCRIPT)
    words = ["gdb", "-nx", "-batch", "-x", str(script), "--args", str(program), *args]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if not target.exists():
        pytest.skip(f"gdb: {done.stderr[-300:]}")
    found = Counter((number, name) for number, name in json.loads(target.read_text()))
    target.unlink()
    return found
