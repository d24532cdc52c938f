# SPDX-License-Identifier: MIT
"""Arguments by name and type: what programs print of their own arguments, traces have too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tracer_programs import SOURCES
from tests.support.typed_programs import Build, calls, missing

BUILDS = [
    Build(arch, compiler, level)
    for arch in ("x86_64", "arm64", "i386")
    for compiler in ("gcc", "clang")
    for level in ("-O0", "-O2")
]
FLOATS = {"mix.a", "mix.f", "pairs.f", "other.ld", "tight.z"}
MISSING = {
    "x86_64": {
        *FLOATS,
        *("pairs.m.d", "pairs.l", "many.f", "many.h", "tight.p", "wide.v", "wide.e"),
    },
    "arm64": {
        *FLOATS,
        *("pairs.l", "many.f.s", "many.g", "many.h", "wide.d", "wide.v", "wide.e"),
    },
    "i386": {
        *("pairs.l.a.1", "pairs.l.a.2", "pairs.f", "pairs.last", "many.f.p.y", "many.f.s"),
        *("many.g", "many.h", "other.ld", "other.t", "tight.z", "tight.tail"),
    },
}
"""Values that are in registers that are not recorded, or in memory."""
DONE_WITHOUT = {
    *("other.n", "other.ld", "tight.z", "wide.w", "local.unused", "count.none", "count.3"),
    *("by_address.none", "hidden.n", "shown.twice"),
}
"""Those that compilers may leave out: functions do not use them, or all calls have the same."""
COPIES = {"local", "count", "hidden", "lambda"}
"""Local functions, which compilers may call otherwise."""
every_build = pytest.mark.parametrize("build", BUILDS, ids=str)


@every_build
@pytest.mark.parametrize("source", ["arguments.c", "arguments.cpp"])
def test_arguments_are_what_the_program_prints(build: Build, source: str, tmp_path: Path) -> None:
    found, raw = set(), set()
    for call in calls(build.program(SOURCES / source, tmp_path), build.arch):
        if call.named is None:
            raw.add(call.name)
        else:
            found |= set(missing(call.printed, call.named, call.name))
    if build.level == "-O0":
        assert raw <= ({"count"} if build.arch == "i386" else set())
        assert found == (MISSING[build.arch] if source.endswith(".c") else set())
    assert raw <= COPIES
    assert found <= MISSING[build.arch] | (DONE_WITHOUT if build.level != "-O0" else set())
