# SPDX-License-Identifier: MIT
"""Histograms by stack and of floats: the program, which counts for itself, comes to the same."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import struct
import subprocess
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import ftpatch
from tests.support.sampling import FUZZ, scaled

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
)
COMPILERS = {
    "x86_64": "x86_64-linux-gnu-gcc",
    "arm64": "aarch64-linux-gnu-gcc",
    "i386": "i686-linux-gnu-gcc",
}
FORMS = pytest.mark.parametrize(
    ("arch", "flags"),
    [
        ("x86_64", ()),
        ("arm64", ()),
        ("arm64", ("-mbranch-protection=standard",)),
        ("i386", ()),
    ],
)
RUNTIME = Path(__file__).parent.parent.parent / "stubs" / "runtime"
CALLS = r"""
#include <stdio.h>
#define APART __attribute__((noipa))
static volatile int held;
static const char *at;
static char way[100];
static int deep;
APART void leaf(int n) { held += n; }
static void run(void);
#define CALLER(name, letter) \
	APART void name(void) { way[deep++] = letter; held++; run(); held++; deep--; }
CALLER(a, 'a')
CALLER(b, 'b')
CALLER(c, 'c')
APART void tail(int n) { held++; leaf(n); }          /* jumps there */
APART static void told(int tails)
{
	printf("%.*s\n", deep, way);
	if (tails)
		tail(1);
	else
		leaf(1);
	held++;
}
APART static void run(void)
{
	for (;;) {
		char what = *at++;

		if (what == ')' || !what) {
			at -= !what;
			return;
		}
		if (what == 'g' || what == 't') {
			told(what == 't');
		} else {
			at++;
			what == 'a' ? a() : what == 'b' ? b() : c();
		}
	}
}
int main(int count, char **scripts)
{
	for (int i = 1; i < count; i++) {
		at = scripts[i];
		run();
	}
	return 0;
}
"""
NUMBERS = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define APART __attribute__((noipa))
APART double take(int kind, double d, float f)
{
	__asm__ volatile("" : : "r"(kind), "r"(&f) : "memory");
	return d;
}
int main(int count, char **words)
{
	double sum[4] = {0};
	float of_f = 0;

	for (int i = 1; i < count; i++) {
		unsigned long bits = strtoul(words[i], 0, 16);
		unsigned narrow = bits >> 32;
		double d;
		float f;

		memcpy(&d, &bits, 8);
		memcpy(&f, &narrow, 4);
		sum[i % 2] += d;
		sum[2] += f;
		of_f += take(i % 2, d, f) > 0;
	}
	for (int i = 0; i < 3; i++) {
		unsigned long bits;

		memcpy(&bits, &sum[i], 8);
		printf("%016lx\n", bits);
	}
	return of_f < 0;
}
"""


def _built(folder: Path, source: str, arch: str, *flags: str) -> Path:
    if shutil.which(COMPILERS[arch]) is None:
        pytest.skip(f"no {COMPILERS[arch]}")
    (folder / "calls.c").write_text(source)
    words = [COMPILERS[arch], "-O2", "-static", "-fno-omit-frame-pointer", *flags]
    subprocess.run([*words, folder / "calls.c", "-o", folder / "calls"], check=True)
    return folder / "calls"


def _run(
    program: Path, arch: str, probes: list[str], *words: str
) -> tuple[list[str], list[dict[str, Any]], str]:
    """The program's lines, the report as JSON, and as text."""
    emulator = ["qemu-aarch64-static"] if arch == "arm64" else []
    if emulator and shutil.which(emulator[0]) is None:
        pytest.skip(f"no {emulator[0]}")
    probed, trace = program.with_suffix(".p"), program.with_suffix(".trace")
    done = ftpatch("probe", program, *probes, "-o", probed)
    assert done.code == 0, done.err
    environment = {**os.environ, "FTPATCH_TRACE": str(trace)}
    said = subprocess.run(
        [*emulator, probed, *words], env=environment, check=True, capture_output=True, text=True
    )
    report, text = ftpatch("report", trace, "--json"), ftpatch("report", trace)
    assert report.code == 0, report.err
    return said.stdout.splitlines(), report.json, text.out


def _script(rng: random.Random, depth: int) -> str:
    parts = []
    for _ in range(rng.randrange(1, 5)):
        name = rng.choice("aabcgt") if depth else rng.choice("gt")
        parts.append(name if name in "gt" else f"{name}({_script(rng, depth - 1)})")
    return "".join(parts)


def _way(stack: list[str], most: int) -> str:
    """The callers of ``told`` in a stack of at most so many calls, the outermost first."""
    names = [re.split(r"[+]", name)[0] for name in stack]
    names = [name for name in names if name in ("a", "b", "c", "run", "main", "told")]
    assert names[0] == "told" and len(stack) <= most
    return "".join(name for name in reversed(names) if name in "abc")


@FORMS
def test_stacks_as_the_program_knows_them(
    arch: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    rng = random.Random(FUZZ)
    scripts = [_script(rng, 6) for _ in range(8)] + ["a(b(gt)c(g))g", "a(a(a(a(a(a(a(tg)))))))"]
    probes = ["p:all leaf n=$arg1:s32 hist:keys=stack:fp", "r:back leaf hist:keys=stack:fp"]
    probes += ["p:three leaf n=$arg1:s32 hist:keys=n,stack(3):fp:vals=n"]
    probes += ["p:one leaf hist:keys=stack(1):fp", "p:caller leaf hist:keys=$caller"]
    hooked = ["r tail", "r a", "r b", "r:again b", "r told"]  # their return addresses are replaced
    program = _built(tmp_path, CALLS, arch, *flags)
    ways, rows, text = _run(program, arch, [*probes, *hooked], *scripts)
    tables = defaultdict[str, list[dict[str, Any]]](list)
    for row in rows:
        if "key" in row:
            tables[row["probe"]].append(row)
    wanted = Counter(ways)
    for probe in ("all", "back"):
        found = Counter[str]()
        for row in tables[probe]:
            found[_way(row["key"]["stack"], 32)] += row["hits"]
        assert found == wanted
    assert sum(row["sums"]["n"]["sum"] for row in tables["three"]) == len(ways)
    found = Counter[str]()
    for row in tables["three"]:
        assert row["key"]["n"] == 1
        found[_way(row["key"]["stack"], 3)] += row["hits"]
    assert found == sum(
        (Counter({way[-1:]: count}) for way, count in wanted.items()), Counter[str]()
    )
    callers = Counter({row["key"]["stack"][0]: row["hits"] for row in tables["one"]})
    assert callers == Counter({row["key"]["caller"]: row["hits"] for row in tables["caller"]})
    assert len(callers) == 2 and all(name.startswith("told+") for name in callers)
    assert re.search(r"\{ n: 1, stack:\n {9}told\+\S+\n {9}run\+\S+\n {9}\S+\n\} hitcount: ", text)


def test_a_full_table_of_stacks(tmp_path: Path) -> None:
    rng = random.Random(FUZZ)
    scripts = [_script(rng, 7) for _ in range(40)]
    program = _built(tmp_path, CALLS, "x86_64")
    probes = ["p:small leaf hist:keys=stack:fp:size=32", "p:n leaf n=$arg1:s32 hist:keys=n"]
    ways, rows, _ = _run(program, "x86_64", probes, *scripts)
    entries = [row for row in rows if "key" in row and row["probe"] == "small"]
    totals = {row["probe"]: row for row in rows if "missed" in row}
    assert len(set(ways)) > 32 and len(entries) == 32
    assert totals["small"]["hits"] + totals["small"]["missed"] == len(ways)
    assert totals["n"]["hits"] == len(ways) and not totals["n"]["missed"]


def _numbers(rng: random.Random, count: int) -> list[int]:
    """Bits of doubles, whose upper halves are floats: of every magnitude, and of one."""
    some = [rng.getrandbits(64) for _ in range(count)]
    some += [struct.unpack("<Q", struct.pack("<d", rng.uniform(-9, 9)))[0] for _ in range(count)]
    finite = [one for one in some if one >> 52 & 0x7FF != 0x7FF and one >> 55 & 0xFF != 0xFF]
    return [*finite, 0x8000000000000000, 0, 1 << 52, 1, 0x800FFFFFFFFFFFFF]


@pytest.mark.parametrize("arch", ["x86_64", "arm64"])
def test_sums_of_floats(arch: str, tmp_path: Path) -> None:
    bits = _numbers(random.Random(FUZZ), 200)
    probes = [
        "p:sums take kind=$arg1:s32 d=%0:f64 f=%1:f32 hist:keys=kind:vals=d,f",
        "p:all take d=%0:f64 f=%1:f32 hist:vals=f",
        "p:keys take d=%0:f64 hist:keys=d",
        "p:narrow take f=%1:f32 hist:keys=f",
        "r:back take ret=$retval:f64 hist:vals=ret",
    ]
    register = "xmm" if arch == "x86_64" else "v"
    probes = [re.sub(r"%(\d)", rf"%{register}\1", probe) for probe in probes]
    program = _built(tmp_path, NUMBERS, arch)
    said, rows, _ = _run(program, arch, probes, *(f"{one:x}" for one in bits))
    sums = [struct.unpack("<d", bytes.fromhex(line)[::-1])[0] for line in said]
    doubles = [struct.unpack("<d", struct.pack("<Q", one))[0] for one in bits]
    singles = [struct.unpack("<f", struct.pack("<I", one >> 32))[0] for one in bits]

    def table(probe: str) -> dict[Any, dict[str, Any]]:
        return {
            json.dumps(row["key"]): row for row in rows if row["probe"] == probe and "key" in row
        }

    for kind in (0, 1):
        mine = doubles[kind - 1 :: 2] if kind else doubles[1::2]
        row = table("sums")[json.dumps({"kind": kind})]
        assert row["sums"]["d"] == {"sum": sums[kind], "min": min(mine), "max": max(mine)}
    (row,) = table("all").values()
    shown = {one: float(str(_single(one))) for one in singles}
    assert row["sums"]["f"]["sum"] == sums[2]
    assert row["sums"]["f"]["min"] == shown[min(singles)]
    assert row["sums"]["f"]["max"] == shown[max(singles)]
    (row,) = table("back").values()
    assert row["sums"]["ret"]["min"] == min(doubles) and row["hits"] == len(bits)
    keys = {row["key"]["d"]: row["hits"] for row in table("keys").values()}
    assert keys == Counter(doubles)  # -0 is 0
    narrow = {row["key"]["f"]: row["hits"] for row in table("narrow").values()}
    assert narrow == Counter(map(shown.__getitem__, singles))


def _single(value: float) -> object:
    import numpy as np

    return np.float32(value)


def test_nan_and_infinities(tmp_path: Path) -> None:
    nan, more, infinity = 0x7FF8000000000000, 0xFFF0000000000001, 0x7FF0000000000000
    probes = ["p:d take kind=$arg1:s32 d=%xmm0:f64 hist:keys=kind:vals=d"]
    probes += ["p:keys take d=%xmm0:f64 hist:keys=d"]
    two, three = (struct.unpack("<Q", struct.pack("<d", one))[0] for one in (2.0, 3.5))
    bits = [infinity, nan, two, more, three, nan]
    program = _built(tmp_path, NUMBERS, "x86_64")
    _, rows, text = _run(program, "x86_64", probes, *(f"{one:x}" for one in bits))
    sums = {
        row["key"]["kind"]: row["sums"]["d"] for row in rows if row["probe"] == "d" and "key" in row
    }
    assert sums == {
        1: {"sum": "inf", "min": 2.0, "max": "inf"},
        0: {"sum": "nan", "min": "nan", "max": "nan"},
    }
    keys = {row["key"]["d"]: row["hits"] for row in rows if row["probe"] == "keys" and "key" in row}
    assert keys == {"nan": 3, "inf": 1, 2.0: 1, 3.5: 1}
    assert "{ d: nan }" in text and "(avg nan, min nan, max nan)" in text


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_sums_as_the_processor_has_them(tmp_path: Path) -> None:
    source = r"""
    #include <stdio.h>
    #include <string.h>
    #include "doubles.h"
    static u64 state = SEED;
    static u64 drawn(void)
    {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        return state * 0x2545f4914f6cdd1dull;
    }
    /* Near each other, or at an end of what there is. */
    static u64 number(u64 near)
    {
        u64 bits = drawn(), kind = drawn() % 8;

        if (kind < 3)
            bits = (bits & ~(0x7ffull << 52)) |
                   (near + (drawn() % 130 << 52) - (65ull << 52) & 0x7ffull << 52);
        if (kind == 3)
            bits &= ~(0x7ffull << 52);
        if (kind == 4)
            bits |= 0x7feull << 52;
        if (kind == 5)
            bits = near ^ 1ull << 63 ^ (drawn() & 7);
        return kind == 6 ? bits & ~0xfffffffffull : bits;
    }
    int main(void)
    {
        for (long i = 0; i < COUNT; i++) {
            u64 one = number(drawn()), other = number(one), sum, found, wide;
            double a, b, c;
            u32 narrow = (u32)drawn() & (drawn() & 1 ? ~0u : 0x807fffffu);
            float f;

            memcpy(&a, &one, 8), memcpy(&b, &other, 8);
            c = a + b;
            memcpy(&sum, &c, 8);
            found = doubles_added(one, other);
            if (c != c ? (found << 1) <= 0xffeull << 52 : sum != found)
                return printf("%016llx + %016llx: %016llx, not %016llx\n", one, other, found, sum);
            memcpy(&f, &narrow, 4);
            c = f;
            memcpy(&wide, &c, 8);
            found = widened(narrow);
            if (f != f ? (found << 1) <= 0xffeull << 52 : wide != found)
                return printf("%08x: %016llx, not %016llx\n", narrow, found, wide);
        }
        return 0;
    }
    """
    (tmp_path / "sums.c").write_text(source)
    seed, count = FUZZ * 2 + 1, scaled(20_000_000, 2_000_000, 200_000_000)
    words = ["gcc", "-O2", f"-DSEED={seed}ull", f"-DCOUNT={count}", f"-I{RUNTIME}"]
    subprocess.run([*words, tmp_path / "sums.c", "-o", tmp_path / "sums"], check=True)
    done = subprocess.run([tmp_path / "sums"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
