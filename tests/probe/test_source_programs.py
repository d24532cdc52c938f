# SPDX-License-Identifier: MIT
"""Programs built from Debian's sources: what a probe says that functions take and return, gdb's
`print` and `finish` say, at every call.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ftpatch.image import open_image
from ftpatch.names.functions import read_functions
from tests.support.command import PATIENCE, ftpatch
from tests.support.sampling import PRODUCT, SEED, scaled
from tests.support.source_programs import SOURCES, Function, built, functions_of
from tests.support.uprobes import returns

GDB = Path(__file__).parent.parent / "support" / "print_gdb.py"
DRAWN = scaled(10, 10, 40)
"""Functions of a program."""
MAX_CALLS = 50
"""Calls of a function that gdb stops at."""
ARCH = ("x86_64", "i386")
CASES = [(name, level, arch) for name in SOURCES for level in ("-O0", "-O2") for arch in ARCH]
pytestmark = pytest.mark.skipif(not PRODUCT, reason="fetches and builds: `make test-stripped`")
KEYS = {"p": "at", "r": "back"}
GONE = "<optimized out>"
ENV = {"MALLOC_PERTURB_": "85"}
"""What malloc() gives out is the same in each run, too."""


def _spelled(text: str) -> str:
    """An expression for ftpatch: $ is what a function returns."""
    return text.replace("$", "$retval", 1)


def _run(program: Path, **env: str) -> tuple[bytes, int]:
    """Run it by the name of the original."""
    name = program.name.partition(".")[0]
    with (program.parent / "input").open("rb") as text:
        done = subprocess.run(
            [program.with_name(name), *SOURCES[name].words], executable=program,
            cwd=program.parent, stdin=text, capture_output=True, timeout=PATIENCE, check=False,
            env={**os.environ, **ENV, **env},
        )  # fmt: skip
    return done.stdout, done.returncode


def _rows(program: Path, probes: list[str]) -> list[dict[str, Any]]:
    """What a program records that does what it did."""
    out, trace = program.with_name(f"{program.name}.probed"), program.with_name("trace")
    done = ftpatch("probe", program, *probes, "-o", out, "--force")
    assert done.code == 0, done.err
    trace.unlink(missing_ok=True)
    assert _run(out, FTPATCH_TRACE=str(trace), FTPATCH_TRACE_SIZE="1G") == _run(program)
    return ftpatch("report", trace, "--json").json


def _called(program: Path, functions: list[Function]) -> list[Function]:
    """Those that are called, and not too often for gdb."""
    probes = [f"p:n{n} {one.name}" for n, one in enumerate(functions)]
    hits = {row["probe"]: row["hits"] for row in _rows(program, probes) if "hits" in row}
    return [one for n, one in enumerate(functions) if 0 < hits[f"n{n}"] <= MAX_CALLS]


def _available(
    program: Path, functions: list[Function], kind: str
) -> tuple[dict[str, list[str]], Counter[str]]:
    """The expressions of each that can be fetched, and why others cannot."""
    asked = {
        f"n{n}x{m}": (one.name, text)
        for n, one in enumerate(functions)
        for m, text in enumerate(one.takes if kind == "p" else one.gives)
    }
    probes = [f"{kind}:{event} {name} {_spelled(text)}" for event, (name, text) in asked.items()]
    done = ftpatch("probe", program, *probes, "--dry-run", "--keep-going", "--json")
    kept: dict[str, list[str]] = {}
    for row in done.json:
        name, text = asked[row["name"]]
        kept.setdefault(name, []).append(text)
    lines = done.err.splitlines()
    assert len(done.json) + len(lines) == len(asked), done.err[-2000:]
    said = (re.sub(r".*\bn\d+x\d+: |'[^']*'|0x[0-9a-f]+|; .*", "", line) for line in lines)
    return kept, Counter(" ".join(one.split()) for one in said)


def _gdb(
    program: Path, at: dict[str, list[str]], back: dict[str, list[str]], level: str, *, apart: bool
) -> dict[str, dict[str, list[list[object]]]]:
    """What gdb prints at all calls."""
    out, plan = program.with_name("printed.json"), program.with_name("plan.json")
    # Without optimisation gdb reads parameters where the prologue puts them.
    star = "*" * (level == "-O2")
    where = {name: [star + name, texts] for name, texts in at.items()}
    given = {"words": " ".join(SOURCES[program.name].words), "out": str(out), "apart": apart}
    plan.write_text(json.dumps({"at": where, "back": back, **given}))
    words = ["gdb", "-nx", "-q", "-batch", "-x", str(GDB), str(program)]
    done = subprocess.run(
        words,
        cwd=program.parent, capture_output=True, text=True, timeout=2 * PATIENCE, check=False,
        env={**os.environ, **ENV, "PLAN": str(plan), "DEBUGINFOD_URLS": "", "SHELL": "/bin/sh"},
    )  # fmt: skip
    assert out.exists(), done.stdout[-2000:] + done.stderr[-2000:]
    found: dict[str, dict[str, list[list[object]]]] = json.loads(out.read_text())
    out.unlink()
    return found


def _returned(program: Path, functions: list[str]) -> Counter[str]:
    """How often functions return, as the kernel counts them."""
    elf = open_image(program).elf
    table = read_functions(open_image(program)).names
    at = {name: table.address(name) for name in functions}
    offsets = {name: int(elf.offset_of(np.array([one], np.uint64))[0]) for name, one in at.items()}
    with returns(program, list(offsets.values())) as told:
        _run(program)
        found = told()
    return Counter({name: found[offset] for name, offset in offsets.items()})


def _plain(value: object) -> object:
    """A value of a report as gdb's are told; None for what cannot be read."""
    if isinstance(value, str) and re.fullmatch(r"0x[0-9a-f]+", value):
        return int(value, 16)
    return None if value == "(fault)" else value


@pytest.mark.parametrize(("name", "level", "arch"), CASES)
def test_values_are_gdbs(
    name: str, level: str, arch: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    program = built(name, level, tmp_path, arch)
    functions = functions_of(program, f"{SEED} {name}")
    random.Random(f"{SEED} {name}").shuffle(functions)
    functions = _called(program, functions)[:DRAWN]
    takes, against = _available(program, functions, "p")
    gives, against_gives = _available(program, functions, "r")
    # One a probe: each is an event of its own, which has no other's length.
    asked = {"p": takes, "r": gives}
    named = {
        f"{kind}{number}x{n}": (kind, one.name, n)
        for number, one in enumerate(functions)
        for kind in asked
        for n in range(len(asked[kind].get(one.name, ())))
    }
    probes = [
        f"{kind}:{event} {function} v={_spelled(asked[kind][function][n])}"
        for event, (kind, function, n) in named.items()
    ]
    mine: dict[str, list[object]] = {event: [] for event in named}
    for row in _rows(program, probes):
        if "values" in row:
            mine[row["probe"]].append(_plain(row["values"]["v"]))
    theirs = [_gdb(program, takes, gives, level, apart=apart) for apart in (False, True)]
    compared, gone, vary, unseen, differ, fewer = 0, 0, 0, 0, [], dict[str, int]()
    for event, (kind, function, n) in named.items():
        first, again = ([call[n] for call in one[KEYS[kind]][function]] for one in theirs)
        text = asked[kind][function][n]
        if kind == "r" and len(first) < len(mine[event]):
            # gdb's FinishBreakpoint misses returns, such as those into functions inlined in a
            # caller: what it sees is among ours, and the kernel has to count as many.
            unseen += len(mine[event]) - len(first)
            fewer[function] = len(mine[event])
            steady = Counter(a for a, b in zip(first, again, strict=True) if a == b != GONE)
            if more := steady - Counter(mine[event]):
                differ.append((function, text, repr(mine[event]), repr(more)))
            compared += steady.total()
            continue
        if len(mine[event]) != len(first):
            differ.append((function, text, f"{len(mine[event])} calls", f"{len(first)} calls"))
            continue
        for value, a, b in zip(mine[event], first, again, strict=True):
            compared += 1
            gone += a == GONE
            vary += a != b
            if a == b != GONE and value != a:
                differ.append((function, text, repr(value), repr(a)))
    assert not differ, differ[:20]
    assert _returned(program, list(fewer)) == fewer
    assert compared - gone - vary > 20
    record_property(
        "measured",
        f"{name} {level} {arch}: {len(functions)} functions,"
        f" {sum(map(len, takes.values()))} parameters,"
        f" {sum(map(len, gives.values()))} results, {compared} values, {gone} gone in gdb,"
        f" {vary} vary, {unseen} results unseen by gdb;"
        f" refused {dict(against + against_gives)}",
    )
