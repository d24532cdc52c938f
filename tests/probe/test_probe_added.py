# SPDX-License-Identifier: MIT
"""Probes added to a program that has some, and taken from it: what it records then, and that each
command is undone by itself."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.sampling import SEED, scaled
from tests.support.tracer_programs import ARCHES, run

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
static volatile int sink;
#define ALONE __attribute__((noinline))
ALONE int add(int a, int b) { sink++; printf("add %d %d\n", a, b); return a + b; }
ALONE int twice(int n) { sink++; printf("twice %d\n", n); return add(n, n); }
ALONE int less(int n) { sink++; printf("less %d\n", n); return n > 2 ? less(n - 2) : n; }
int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		printf("= %d\n", twice(atoi(argv[i])) + less(i));
	return 0;
}
"""
WORDS = ("4", "-7", "100")
PROBES = {
    "add": ("p:add add a=$arg1:s32 b=$arg2:s32", "add"),
    "twice": ("p:twice twice n=$arg1:s32", "twice"),
    "less": ("p:less less n=$arg1:s32", "less"),
    "sum": ("r:sum add ret=$retval:s32", ""),
    "both": ("r:both twice ret=$retval:s32", ""),
}
"""The definition of each, and the begin of the lines that the program itself prints for it."""


def _built(folder: Path, arch: str, pads: bool) -> Path:
    one = ARCHES[arch]
    if shutil.which(one.gcc) is None:
        pytest.skip(f"{one.gcc} is not installed")
    (folder / "calls.c").write_text(SOURCE)
    words = [one.gcc, "-O1", "-fno-optimize-sibling-calls", *([one.pad] if pads else [])]
    subprocess.run([*words, str(folder / "calls.c"), "-o", str(folder / "calls")], check=True)
    return folder / "calls"


def _records(program: Path, arch: str, has: set[str], folder: Path) -> None:
    """The hits of a run are what the program prints, of the probes that it has."""
    trace = folder / "trace"
    trace.unlink(missing_ok=True)
    plain = run(folder / "calls", WORDS, cwd=folder, arch=arch)
    done = run(program, WORDS, cwd=folder, arch=arch, env={"FTPATCH_TRACE": str(trace)})
    assert (done.status, done.out) == (plain.status, plain.out)
    if not has:
        assert not trace.exists()
        return
    told = ftpatch("report", trace, "--json")
    assert told.code == 0, told.err
    rows = told.json
    said = [line.split() for line in plain.out.decode().splitlines()]
    for name in PROBES:
        hits = [row["values"] for row in rows if row.get("probe") == name and "values" in row]
        if name not in has:
            assert not [row for row in rows if row.get("probe") == name]
        elif PROBES[name][1]:
            wanted = [line[1:] for line in said if line[0] == name]
            assert [[str(value) for value in one.values()] for one in hits] == wanted
        else:
            sums = [str(2 * int(line[1])) for line in said if line[0] == "twice"]
            assert [str(one["ret"]) for one in hits] == sums
    ends = {row["probe"]: row["missed"] for row in rows if "missed" in row}
    assert ends == dict.fromkeys(has, 0)


@pytest.mark.parametrize(
    ("arch", "pads"),
    [("x86_64", False), ("x86_64", True), ("i386", False), ("i386", True), ("arm64", True)],
    ids=str,
)
def test_any_sequence(arch: str, pads: bool, tmp_path: Path) -> None:
    """Whatever is added, taken and undone, the program is what one command would have made, and its
    journal leads back to each state."""
    program = _built(tmp_path, arch, pads)
    original = program.read_bytes()
    random_ = random.Random(f"{SEED} {arch} {pads}")
    for _ in range(scaled(6, 2)):
        states: list[tuple[bytes, set[str]]] = [(original, set())]
        place = tmp_path / "probed"
        place.write_bytes(original)
        place.chmod(0o755)
        for _ in range(7):
            has = states[-1][1]
            free = [name for name in PROBES if name not in has]
            choice = random_.choice(["add", "add", "take", "undo"])
            if choice == "undo" and len(states) > 1:
                assert ftpatch("undo", place).code == 0
                states.pop()
            elif choice == "take" and has:
                gone = random_.sample(sorted(has), random_.randint(1, len(has)))
                more = random_.sample(free, min(len(free), random_.randint(0, 1)))
                texts = [*(f"-:{name}" for name in gone), *(PROBES[name][0] for name in more)]
                done = ftpatch("probe", place, *texts, "--in-place")
                assert done.code == 0, done.err
                states.append((place.read_bytes(), has - {*gone} | {*more}))
            elif free:
                new = random_.sample(free, random_.randint(1, len(free)))
                done = ftpatch("probe", place, *(PROBES[name][0] for name in new), "--in-place")
                assert done.code == 0, done.err
                states.append((place.read_bytes(), has | {*new}))
            assert place.read_bytes() == states[-1][0]
            listed = ftpatch("probe", place)
            names = {line.split()[0].partition("/")[2] for line in listed.out.splitlines()}
            assert names == states[-1][1]
        _records(place, arch, states[-1][1], tmp_path)
        if len(states) > 1:
            whole = tmp_path / "whole"
            shutil.copy2(place, whole)
            assert ftpatch("undo", whole, "--all").code == 0
            assert whole.read_bytes() == original
        while len(states) > 1:
            states.pop()
            assert ftpatch("undo", place).code == 0
            assert place.read_bytes() == states[-1][0]


def test_names_that_are_taken_or_unknown(tmp_path: Path) -> None:
    program, out = _built(tmp_path, "x86_64", False), tmp_path / "out"
    assert ftpatch("probe", program, PROBES["add"][0], "p:grp/x twice", "-o", out).code == 0
    before = out.read_bytes()
    for text, clause in (
        ("p:add twice", "add is in this program already, at add+0x0; take it away with -:add"),
        ("-:ad", "no probe ad in this program: 'ad' at column 3 of '-:ad'; did you mean add?"),
        ("-:x", "no probe x in this program: 'x' at column 3 of '-:x'; it has add, grp/x"),
        ("-:", "event name is not specified, at column 3 of '-:'"),
        ("-:grp/", "event name is not specified"),
        ("-:a b", "event name must follow the same rules as C identifiers"),
    ):
        done = ftpatch("probe", out, text, "--in-place")
        assert done.code == 2 and clause in done.err, done.err
        assert out.read_bytes() == before
    done = ftpatch("probe", program, "-:add", "-o", tmp_path / "other")
    assert done.code == 2 and "-:add: no probes in this program" in done.err
    done = ftpatch("probe", out, "-:grp/x", "p:grp/x less", "--in-place")
    assert done.code == 0, done.err
    assert "p:grp/x less" in ftpatch("probe", out).out


def test_what_another_laid_in_is_left_alone(tmp_path: Path) -> None:
    """A byte of the stub that is another than this version's: nothing is made anew from it."""
    program, out = _built(tmp_path, "x86_64", False), tmp_path / "out"
    assert ftpatch("probe", program, PROBES["add"][0], "-o", out).code == 0
    held = bytearray(out.read_bytes())
    at = held.index(b"FTPATCHSTUB") + 0x2000
    held[at] ^= 1
    out.write_bytes(held)
    done = ftpatch("probe", out, PROBES["less"][0], "--in-place")
    assert done.code == 2 and "run `ftpatch undo`" in done.err and out.read_bytes() == held
    done = ftpatch("probe", program, PROBES["add"][0], "--no-optimize", "--force", "-o", out)
    assert done.code == 0
    done = ftpatch("probe", out, PROBES["less"][0], "--in-place")
    assert done.code == 2 and "with --no-optimize" in done.err
    done = ftpatch("probe", out, PROBES["less"][0], "--no-optimize", "--in-place", "--json")
    assert done.code == 0 and [row["way"] for row in done.json] == ["trap", "trap"]


def test_a_wildcard_adds_names_that_are_free(tmp_path: Path) -> None:
    program, out = _built(tmp_path, "x86_64", False), tmp_path / "out"
    assert ftpatch("probe", program, "p:add twice", "-o", out).code == 0
    done = ftpatch("probe", out, "p:* [al]*d*", "--in-place", "--json")
    assert done.code == 0, done.err
    names = {(row["name"], row["definition"].split()[1]) for row in done.json}
    assert {("add", "twice"), ("add_1", "add")} <= names


def test_without_a_journal_nothing_is_added(tmp_path: Path) -> None:
    program, out = _built(tmp_path, "x86_64", False), tmp_path / "out"
    assert ftpatch("probe", program, PROBES["add"][0], "-o", out).code == 0
    out.write_bytes(out.read_bytes() + b"\0")
    done = ftpatch("probe", out, "-:add", "--in-place")
    assert done.code == 2 and "its journal is gone" in done.err
