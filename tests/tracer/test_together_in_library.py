# SPDX-License-Identifier: MIT
"""A tracer and probes in one shared library by itself: each records what the library counts, and
each command is undone by itself."""

from __future__ import annotations

import itertools
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.sampling import scaled
from tests.support.tracer_programs import ARCHES
from tests.support.whole_library import COUNTED, Ran, built, command, counts, told

PROBES = (
    "p:deep whole_deep n=$arg1:s32",
    "r:back whole_back ret=$retval:s32",
    "p:calls whole_calls",
)
MORE = ("p:leaf whole_leaf n=$arg1:s32", "-:calls")


def _library(folder: Path, arch: str, *, opens: bool = False) -> tuple[Path, list[str | Path]]:
    """The library, and the words that run a program which loads it."""
    one = ARCHES[arch]
    library, program = built(folder, compiler=one.gcc, pad=one.pad, opens=opens)
    return library, command(arch, program, *([library] if opens else []))


def _counted(ran: Ran) -> dict[str, int]:
    """What the program itself counted, before it forked."""
    (line,) = (one for one in ran.out.splitlines() if one.startswith("parent"))
    return dict(zip(COUNTED, map(int, line.split()[1:]), strict=True))


def _hits(ran: Ran) -> Counter[str]:
    done = ftpatch("report", ran.traces[0], "--json", "--no-children")
    assert done.code == 0, done.err
    return Counter(row["probe"] for row in done.json if "probe" in row and "time" in row)


@pytest.mark.parametrize("opens", [False, True], ids=["linked", "opened"])
@pytest.mark.parametrize("arch", ["x86_64", "i386", "arm64"])
def test_any_order(arch: str, opens: bool, tmp_path: Path) -> None:
    library, words = _library(tmp_path, arch, opens=opens)
    plain = told(words, tmp_path)
    original = library.read_bytes()
    commands = (("enable", "--tracer", "function_graph"), ("probe", *PROBES), ("probe", *MORE))
    orders = [
        order
        for order in itertools.permutations(commands)
        if order.index(commands[1]) < order.index(commands[2])
    ]
    for order in orders[: scaled(len(orders), 1)]:
        before = []
        for verb, *more in order:
            before.append(library.read_bytes())
            done = ftpatch(verb, library, *more, "--in-place", "-q")
            assert done.code == 0, done.err
        ran = told(words, tmp_path)
        assert (ran.code, ran.out) == (plain.code, plain.out), ran.err
        of_program = _counted(ran)
        assert _hits(ran) == {name: of_program[name] for name in ("leaf", "deep", "back")}
        calls = counts(ran.traces[0])
        for name in ("leaf", "deep", "back", "begin"):
            assert calls[f"whole_{name}"] == of_program[name], (order, name)
        assert "has 3 probes" in ftpatch("status", library).out
        assert ftpatch("check", library).code == 0
        for held in reversed(before):
            assert ftpatch("undo", library, "--in-place").code == 0
            assert library.read_bytes() == held
        assert library.read_bytes() == original


def test_hits_are_in_their_calls(tmp_path: Path) -> None:
    """As a comment each, of a call that the tracer recorded, with what it returned."""
    library, words = _library(tmp_path, "x86_64")
    for verb, *more in (("enable", "--tracer", "function_graph"), ("probe", *PROBES)):
        assert ftpatch(verb, library, *more, "--in-place", "-q").code == 0
    ran = told(words, tmp_path)
    graph = ftpatch("report", ran.traces[0], "--no-children").out
    found = re.findall(
        r"whole_deep\(\) \{\n[^\n]*/\* deep: \(whole_deep\+0x0/0x\w+\) n=\d+ \*/", graph
    )
    assert len(found) > _counted(ran)["deep"] // 2  # threads come between others
    assert "/* back: (whole_back+0x" in graph


def test_refusals(tmp_path: Path) -> None:
    library, _ = _library(tmp_path, "x86_64")
    shutil.copy2(library, tmp_path / "plain")
    assert ftpatch("probe", library, PROBES[0], "--in-place").code == 0
    for more, reason in (
        (("enable", library, "--tracer", "function_profile"), "beside which function_profile"),
        (("enable", library, "--tracer", "function", "--args"), "beside which --args"),
        (("watch", library, "calls:rw-"), "not a program"),
        (("probe", library, "p libc.so.6:malloc"), "not a function of this library"),
        (("probe", library, "-:nothing"), "no probe nothing"),
    ):
        done = ftpatch(*more, "-o", tmp_path / "out")
        assert done.code == 2 and reason in done.err, done.err
        assert done.err.count("\n") == 1 and not (tmp_path / "out").exists()
