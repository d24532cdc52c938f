# SPDX-License-Identifier: MIT
"""Histograms of probes: the program, which counts for itself, comes to the same."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import ftpatch

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
)
ARCHES = {"x86_64": ("gcc", []), "arm64": ("aarch64-linux-gnu-gcc", ["qemu-aarch64-static"])}
SOURCE = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) long work(int n, unsigned long u, const char *name)
{
	__asm__ volatile("" : : "r"(n), "r"(u), "r"(name) : "memory");
	return n * 3L;
}
static void *works(void *at)
{
	for (int i = 0; i < 20000; i++)
		work(i % 50, i, "same");
	return at;
}
int main(int argc, char **argv)
{
	pthread_t one[4];

	if (argc > 1) {
		for (int i = 0; i < 4; i++)
			pthread_create(one + i, 0, works, 0);
		for (int i = 0; i < 4; i++)
			pthread_join(one[i], 0);
		return argv == 0;
	}
	srand(1);
	for (int i = 0; i < 3000; i++) {
		int n = rand() % 400 - 200;
		unsigned long u = (unsigned long)rand() << rand() % 33 >> rand() % 31;
		char name[70];
		int size = rand() % 30 ? rand() % 3 : rand() % 62;

		for (int k = 0; k < size; k++)
			name[k] = "ab"[rand() % 2];
		name[size] = 0;
		printf("%d %lu %s\n", n, u, name);
		work(n, u, i % 100 ? name : (char *)8);
	}
	return 0;
}
"""
FIELDS = "n=$arg1:s32 u=$arg2:u64 name=+0($arg3):string"
SIZE = 62
"""Of the longest name."""


def _traced(tmp_path: Path, arch: str, probes: list[str], *words: str) -> tuple[str, Path]:
    gcc, runs = ARCHES[arch]
    if shutil.which(gcc) is None or (runs and shutil.which(runs[0]) is None):
        pytest.skip(f"no {gcc}, or nothing to run its programs with")
    (tmp_path / "work.c").write_text(SOURCE)
    program, trace = tmp_path / "work", tmp_path / "trace"
    built = [gcc, "-O1", "-static", "-pthread", str(tmp_path / "work.c"), "-o", str(program)]
    subprocess.run(built, check=True)
    done = ftpatch("probe", program, *probes, "-o", tmp_path / "work.p")
    assert done.code == 0, done.err
    said = subprocess.run(
        [*runs, str(tmp_path / "work.p"), *words],
        env={**os.environ, "FTPATCH_TRACE": str(trace)},
        check=True,
        capture_output=True,
        text=True,
    )
    return said.stdout, trace


def _rows(trace: Path) -> list[dict[str, Any]]:
    report = ftpatch("report", trace, "--json")
    assert report.code == 0, report.err
    rows: list[dict[str, Any]] = report.json
    return rows


def _keyed(rows: list[dict[str, Any]], probe: str) -> dict[object, dict[str, Any]]:
    """The entries of a probe's histogram, by the values of their key."""
    mine = (row for row in rows if row["probe"] == probe and "key" in row)
    return {
        tuple(tuple(one) if isinstance(one, list) else one for one in row["key"].values()): row
        for row in mine
    }


@pytest.mark.parametrize("arch", ARCHES)
def test_as_the_program_counts(arch: str, tmp_path: Path) -> None:
    probes = [
        f"p:all work {FIELDS} hist:vals=n,u",
        f"p:each work {FIELDS} hist:keys=n:vals=u",
        f"p:magnitude work {FIELDS} hist:keys=u.log2:vals=n",
        f"p:signed work {FIELDS} hist:keys=n.log2",
        f"p:tens work {FIELDS} hist:keys=n.buckets=10",
        f"p:named work {FIELDS} hist:keys=name if n > 0",
        f"p:two work {FIELDS} hist:keys=n.buckets=100,u.log2:size=4096",
        "r:back work ret=$retval:s64 hist:keys=ret:vals=ret,$latency",
    ]
    said, trace = _traced(tmp_path, arch, probes)
    calls = [(int(n), int(u), name) for n, u, name in (x.split(" ") for x in said.splitlines())]
    rows = _rows(trace)
    tables = {
        name: _keyed(rows, name) for name in ("all", "each", "magnitude", "signed", "tens", "named")
    }

    (whole,) = tables["all"].values()
    assert whole["hits"] == len(calls)
    for name, values in (("n", [n for n, _, _ in calls]), ("u", [u for _, u, _ in calls])):
        total = sum(values) % 2**64 if name == "u" else sum(values)
        assert whole["sums"][name] == {"sum": total, "min": min(values), "max": max(values)}

    each = Counter(n for n, _, _ in calls)
    assert {key: row["hits"] for key, row in tables["each"].items()} == {
        (n,): count for n, count in each.items()
    }
    for n in each:
        values = [u for m, u, _ in calls if m == n]
        sums = tables["each"][(n,)]["sums"]["u"]
        assert (sums["min"], sums["max"]) == (min(values), max(values))
        assert sums["sum"] == sum(values) % 2**64

    bits = Counter(u.bit_length() for _, u, _ in calls)
    wanted = {((1 << bit >> 1, (1 << bit) - 1),): count for bit, count in bits.items()}
    assert {key: row["hits"] for key, row in tables["magnitude"].items()} == wanted
    # A negative number's bucket mirrors that of the positive one.
    sides = Counter((n < 0, n.bit_length()) for n, _, _ in calls)
    assert {negative for negative, _ in sides} == {False, True}
    ends = {(side, bit): (1 << bit >> 1, (1 << bit) - 1) for side, bit in sides}
    wanted = {
        ((-high, -low) if side else (low, high),): sides[side, bit]
        for (side, bit), (low, high) in ends.items()
    }
    assert {key: row["hits"] for key, row in tables["signed"].items()} == wanted
    lows = [row["key"]["n"][0] for row in tables["signed"].values()]
    assert lows == sorted(lows)
    tens = Counter(n // 10 * 10 for n, _, _ in calls)
    wanted = {((low, low + 9),): count for low, count in tens.items()}
    assert {key: row["hits"] for key, row in tables["tens"].items()} == wanted

    read = [(n, name) for row, (n, _, name) in enumerate(calls) if row % 100]
    names = Counter(name for n, name in read if n > 0)
    assert {key: row["hits"] for key, row in tables["named"].items()} == {
        (name,): count for name, count in names.items()
    }
    unread = sum(n > 0 for row, (n, _, _) in enumerate(calls) if not row % 100)
    missed = {row["probe"]: row["missed"] for row in rows if "missed" in row}
    assert missed["named"] == unread > 0

    two = Counter((n // 100 * 100, u.bit_length()) for n, u, _ in calls)
    assert sorted(row["hits"] for row in _keyed(rows, "two").values()) == sorted(two.values())
    back = _keyed(rows, "back")
    assert {key: row["hits"] for key, row in back.items()} == {
        (3 * n,): count for n, count in each.items()
    }
    assert all(row["sums"]["latency"]["min"] >= 0 for row in back.values())


def test_threads_share_a_table(tmp_path: Path) -> None:
    probes = [f"p:shared work {FIELDS} hist:keys=n:vals=u", f"p:tid work {FIELDS} hist:keys=$tid"]
    _, trace = _traced(tmp_path, "x86_64", probes, "threads")
    rows = _rows(trace)
    shared = _keyed(rows, "shared")
    assert len(shared) == 50
    for n in range(50):
        row = shared[(n,)]
        assert row["hits"] == 1600
        values = range(n, 20000, 50)
        assert row["sums"]["u"] == {"sum": 4 * sum(values), "min": n, "max": max(values)}
    assert [row["hits"] for row in _keyed(rows, "tid").values()] == [20000] * 4


def test_a_full_table_counts_what_it_drops(tmp_path: Path) -> None:
    probes = [f"p:small work {FIELDS} hist:keys=n:size=20"]
    said, trace = _traced(tmp_path, "x86_64", probes)
    rows = _rows(trace)
    assert len(_keyed(rows, "small")) == 32  # the next power of two
    (total,) = (row for row in rows if "missed" in row)
    assert total["hits"] + total["missed"] == len(said.splitlines())
    text = ftpatch("report", trace).out
    assert f"# Totals: hits {total['hits']}, entries 32, dropped {total['missed']}\n" in text


@pytest.mark.parametrize("key", ["$caller.log2", "$caller.buckets=16", "at.log2"])
def test_buckets_of_addresses_are_refused(key: str, tmp_path: Path) -> None:
    (tmp_path / "work.c").write_text(SOURCE)
    program = tmp_path / "work"
    subprocess.run(["gcc", "-pthread", tmp_path / "work.c", "-o", program], check=True)
    probe = f"p work at=$arg3:symbol hist:keys={key}"
    done = ftpatch("probe", program, probe, "-o", tmp_path / "out")
    column = probe.rindex(".") + 2
    assert done.code == 2 and "an address has no magnitude: " in done.err, done.err
    assert f"at column {column} of" in done.err


def test_the_text(tmp_path: Path) -> None:
    probes = [
        f"p:sized work {FIELDS} hist:keys=n.buckets=100,$caller:vals=n if n >= 0 && u < 100",
        "r:took work hist:vals=$latency",
    ]
    said, trace = _traced(tmp_path, "x86_64", probes)
    low = [int(one.split()[0]) for one in said.splitlines() if int(one.split()[1]) < 100]
    first = [n for n in low if 0 <= n < 100]
    text = ftpatch("report", trace).out
    assert "# event histogram: sized\n" in text
    assert "# event histogram: took (latency in ns)\n" in text
    (line,) = (one for one in text.splitlines() if one.startswith("{ n: ~ 0-99, caller: main+"))
    average = sum(first) // len(first)
    assert line.split(" } ")[1].split() == [
        *("hitcount:", str(len(first)), "n:", str(sum(first))),
        *("(avg", f"{average},", "min", f"{min(first)},", "max", f"{max(first)})"),
    ]
