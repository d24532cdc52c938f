# SPDX-License-Identifier: MIT
"""``$depth`` in filters: the program itself knows how many of its calls are followed."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ftpatch.probe import definition_text, parse_probe
from tests.support.command import ftpatch
from tests.support.sampling import FUZZ

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
)
COMPILERS = {"x86_64": "x86_64-linux-gnu-gcc", "arm64": "aarch64-linux-gnu-gcc"}
FORMS = pytest.mark.parametrize(
    ("arch", "flags"),
    [
        ("x86_64", ()),
        ("x86_64", ("-fno-omit-frame-pointer",)),
        ("arm64", ()),
        ("arm64", ("-fomit-frame-pointer",)),
        ("arm64", ("-mbranch-protection=standard",)),
    ],
)
SOURCE = r"""
#include <setjmp.h>
#include <stdio.h>
#define APART __attribute__((noipa))
static const char *at;
static int deep;
static jmp_buf back;
static volatile int held;
APART void g(int known) { __asm__ volatile("" : : "r"(known) : "memory"); }
APART void settled(void) { held++; }
static void run(void);
APART void one(void) { deep++; run(); deep--; }
APART void two(int n) { volatile char room[200]; room[n] = 1; deep++; run(); deep -= room[n]; }
APART void plain(void) { volatile char room[99]; room[7] = 1; run(); held += room[7]; }
APART void last(void) { held++; g(deep + 1); }      /* which jumps there ... */
APART void passed(void) { held++; last(); }          /* ... and so does this */
/* 1( 2( p( a call, until its parenthesis; g a hit; t one by two tail calls. */
APART static void run(void)
{
	for (;;) {
		char what = *at++;

		if (what == ')' || !what) {
			at -= !what;
			return;
		}
		if (what == 'g')
			g(deep);
		else if (what == 't') {
			deep++;
			passed();
			deep--;
		} else if (at++, what == '1')
			one();
		else if (what == '2')
			two(3);
		else
			plain();
	}
}
APART void leaves(int n)
{
	volatile char room[300];

	room[n] = 1;
	if (n)
		leaves(n - 1);
	longjmp(back, room[n]);
}
int main(int count, char **scripts)
{
	for (int i = 1; i < count; i++) {
		at = scripts[i];
		run();
		if (!setjmp(back))
			leaves(i % 5);
		settled();
	}
	return 0;
}
"""
DEEPEST = 12


def _script(rng: random.Random, depth: int) -> str:
    parts = []
    for _ in range(rng.randrange(1, 5)):
        name = rng.choice("112ppgt") if depth else rng.choice("gt")
        parts.append(name if name in "gt" else f"{name}({_script(rng, depth - 1)})")
    return "".join(parts)


def _depths(script: str) -> Counter[int]:
    """How often g is called in so many calls that are followed."""
    out, held = Counter[int](), list[int]()
    for char in script:
        if char in "12p":
            held.append(char != "p")
        elif char == ")":
            held.pop()
        elif char in "gt":
            out[sum(held) + 2 * (char == "t")] += 1
    return out


def _built(folder: Path, arch: str, *flags: str) -> Path:
    if shutil.which(COMPILERS[arch]) is None:
        pytest.skip(f"no {COMPILERS[arch]}")
    (folder / "deep.c").write_text(SOURCE)
    words = [COMPILERS[arch], "-O2", "-static", *flags, str(folder / "deep.c")]
    subprocess.run([*words, "-o", str(folder / "deep")], check=True)
    return folder / "deep"


def _run(program: Path, arch: str, probes: list[str], *words: str) -> list[dict[str, Any]]:
    emulator = [] if arch == "x86_64" else ["qemu-aarch64-static"]
    if emulator and shutil.which(emulator[0]) is None:
        pytest.skip(f"no {emulator[0]}")
    probed, trace = program.with_suffix(".p"), program.with_suffix(".trace")
    done = ftpatch("probe", program, *probes, "-o", probed)
    assert done.code == 0, done.err
    environment = {**os.environ, "FTPATCH_TRACE": str(trace)}
    subprocess.run([*emulator, probed, *words], env=environment, check=True)
    report = ftpatch("report", trace, "--json")
    assert report.code == 0, report.err
    rows: list[dict[str, Any]] = report.json
    return rows


def _hits(rows: list[dict[str, Any]], probe: str) -> int:
    return sum(row["hits"] for row in rows if row["probe"] == probe and "key" in row)


@FORMS
def test_the_depth_of_hits_and_returns(arch: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    rng = random.Random(FUZZ)
    scripts = [_script(rng, 7) for _ in range(12)] + ["1(2(gt)g)tg"]
    wanted = sum(map(_depths, scripts), Counter[int]())
    followed = ["r one", "r two", "r:again two", "r last", "r passed", "r settled", "r leaves"]
    probes = [f"p:at_{n} g hist:vals=$arg1 if $depth == {n}" for n in range(DEEPEST)]
    probes += [f"r:back_{n} g hist if $depth == {n}" for n in (0, 3)]
    probes += ["p:low g n=$arg1:s32 hist:keys=n if $depth < 2 || $depth == 1"]
    probes += ["p:as_known g n=$arg1:u32 hist:keys=n if n == $depth"]
    # An r probe on the function itself does not make it deeper.
    probes += ["p:own one hist if $depth == 1", "r:own_back one hist if $depth == 1"]
    rows = _run(_built(tmp_path, arch, *flags), arch, [*probes, *followed], *scripts)
    assert wanted[0] and wanted[2] and max(wanted) > 3
    assert {n: _hits(rows, f"at_{n}") for n in range(DEEPEST)} == {
        n: wanted[n] for n in range(DEEPEST)
    }
    assert {n: _hits(rows, f"back_{n}") for n in (0, 3)} == {n: wanted[n] for n in (0, 3)}
    assert _hits(rows, "low") == wanted[0] + wanted[1]
    assert _hits(rows, "as_known") == sum(wanted.values())
    assert _hits(rows, "own") == _hits(rows, "own_back") > 0


def test_a_graph_of_so_many_levels(tmp_path: Path) -> None:
    """As max_graph_depth: all are followed, and those that are not too deep recorded."""
    program = _built(tmp_path, "x86_64")
    script = "1(1(1(1(g))))"
    rows = _run(program, "x86_64", ["r one if $depth < 2"], script)
    assert [row["hits"] for row in rows if "missed" in row] == [2]


@pytest.mark.parametrize(
    "probes",
    [["p g if $depth < 3"], ["p g n=$arg1:s32 if n > 3 && !($depth > 3)", "p one"]],
)
def test_where_nothing_follows_calls(probes: list[str], tmp_path: Path) -> None:
    program = _built(tmp_path, "x86_64")
    done = ftpatch("probe", program, *probes, "-o", tmp_path / "out")
    column = probes[0].index("$depth") + 1
    said = f"no r probe follows the calls of $depth: '$depth' at column {column} of "
    assert done.code == 2 and said in done.err and "'r FUNC'" in done.err, done.err
    assert not (tmp_path / "out").exists()


def test_its_text() -> None:
    text = "p:probes/a f n=$arg1:u32 if ($depth < 3 || n == $depth) && !($depth > 9)"
    found = parse_probe(text, ["di"], arguments=6)
    assert definition_text(found) == text
    assert parse_probe("p:a f n=$arg1:u32 if $depth:s32<3", ["di"], arguments=6).filter
    bare = definition_text(parse_probe("p:a f if $depth", ["di"], arguments=6))
    assert bare == "p:probes/a f if $depth != 0"
