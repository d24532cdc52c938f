# SPDX-License-Identifier: MIT
"""Files of probes and watches that are rotated, alone and together with a tracer: what is in all of
them and what was counted when files were removed is what the program did, by its own count."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import PATIENCE, ftpatch
from tests.support.padded import padded
from tests.support.sampling import scaled

SOURCE = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#define BARE __attribute__((patchable_function_entry(0)))
long stock;
static __thread long mine;
long sell(long n) { __asm__ volatile("" ::: "memory"); return n * 3; }
long twice(long n) { return n > 0 ? twice(n - 1) + 1 : 0; }
BARE static void *run(void *count)
{
	for (long i = 1; i <= (long)count; i++)
		mine += sell(i);
	return (void *)mine;
}
BARE int main(int argc, char **argv)
{
	pthread_t id[16];
	int threads = atoi(argv[1]);

	for (int i = 0; i < threads; i++)
		pthread_create(&id[i], 0, run, (void *)atol(argv[2]));
	for (int i = 0; i < threads; i++)
		pthread_join(id[i], 0);
	for (long i = 0; i < atol(argv[3]); i++)
		*(volatile long *)&stock = i;
	for (long i = 0; argc > 4 && i < atol(argv[4]); i++)
		twice(50);
	return 0;
}
"""
SMALL = ("--size", "64K", "--rotate", "2")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program whose threads sell so many times, and which then writes a variable as often."""
    return padded(tmp_path_factory.mktemp("sold"), SOURCE, "-pthread", "-w", "-fno-inline")


def _run(traced: Path, folder: Path, *words: int, **env: str) -> list[Path]:
    """Run it; the files that are left, the latest one last."""
    environment = {**os.environ, "FTPATCH_TRACE": str(folder / "trace"), **env}
    command: list[str | Path] = [traced, *map(str, words)]
    done = subprocess.run(
        command, env=environment, check=True, timeout=PATIENCE, capture_output=True, text=True
    )
    assert not done.stderr
    return sorted(folder.glob("trace*"), key=lambda one: int(one.suffix[2:] or "0"))


def _rows(*files: Path, options: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    said = ftpatch("report", *files, "--json", *options)
    assert said.code == 0, said.err
    for damage in ("corrupt", "without a valid last event", "truncated"):
        assert damage not in said.err, said.err
    return [*map(json.loads, said.out.splitlines())]


def _gone(rows: list[dict[str, Any]]) -> int:
    losses = [one for one in rows if "overwritten" in one]
    assert not sum(sum(one["lost"].values()) for one in losses)
    return sum(one["overwritten"] for one in losses)


@pytest.mark.parametrize("method", [(), ("--no-optimize",)], ids=["pad", "trap"])
@pytest.mark.parametrize("threads", [1, 5])
def test_hits(program: Path, tmp_path: Path, threads: int, method: tuple[str, ...]) -> None:
    """Of each thread the latest are there, with their values, and all others were counted."""
    traced, count = tmp_path / "patched", scaled(60_000, 15_000) // threads
    words = ("p sell n=$arg1:s64", *SMALL, *method)
    assert ftpatch("probe", program, *words, "-o", traced).code == 0
    files = _run(traced, tmp_path, threads, count, 0)
    assert 3 <= len(files) <= 5 and not (tmp_path / "trace").exists()
    rows = _rows(files[0])
    hits: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        if "time" in row:
            hits[row["tid"]].append(row["values"]["n"])
    for numbers in hits.values():
        assert numbers == list(range(count - len(numbers) + 1, count + 1))
    shown = sum(map(len, hits.values()))
    assert shown + _gone(rows) == threads * count and 0 < shown < threads * count


def test_what_is_missed_is_counted_over_all_files(program: Path, tmp_path: Path) -> None:
    """An r probe with one instance, on a function that calls itself: the calls that found none."""
    traced, count = tmp_path / "patched", 400
    words = ("r1:back twice ret=$retval:s64", "p:all twice")
    assert ftpatch("probe", program, *words, *SMALL, "-o", traced).code == 0
    files = _run(traced, tmp_path, 0, 0, 0, count)
    rows = _rows(files[0])
    (back,) = [row for row in rows if row.get("probe") == "back" and "missed" in row]
    assert len(files) >= 3 and back["missed"] == 50 * count


def test_filters_count_on(program: Path, tmp_path: Path) -> None:
    """every() and first() count hits of the process, not of a file."""
    traced, count = tmp_path / "patched", scaled(60_000, 30_000)
    words = ("p:some sell n=$arg1:s64 if every(10)", "p:few sell if first(5)", "p:all sell")
    more = ("--size", "64K", "--rotate", "999", "-o", traced)
    assert ftpatch("probe", program, *words, *more).code == 0
    files = _run(traced, tmp_path, 1, count, 0)
    assert len(files) > 5
    probes = Counter(row["probe"] for row in _rows(files[0]) if "time" in row)
    assert probes == {"some": count // 10, "few": 5, "all": count}


def test_stacks(program: Path, tmp_path: Path) -> None:
    """Longer events, that are unwound from whichever file they are in."""
    traced, count = tmp_path / "patched", scaled(20_000, 4_000)
    words = ("p sell stack(3)", "--size", "128K", "--rotate", "999", "-o", traced)
    assert ftpatch("probe", program, *words).code == 0
    files = _run(traced, tmp_path, 2, count, 0)
    assert len(files) > 3
    rows = [row for row in _rows(files[0]) if "time" in row]
    assert len(rows) == 2 * count


def test_each_file_is_readable_alone(program: Path, tmp_path: Path) -> None:
    traced, count = tmp_path / "patched", 20_000
    words = ("p sell n=$arg1:s64", "--size", "64K", "--rotate", "999", "-o", traced)
    assert ftpatch("probe", program, *words).code == 0
    files = _run(traced, tmp_path, 2, count, 0)
    each = [_rows(file, options=("--no-children",)) for file in files]
    assert sum("time" in row for rows in each for row in rows) == 2 * count
    assert sum("time" in row for row in _rows(*files)) == 2 * count


def test_accesses(program: Path, tmp_path: Path) -> None:
    traced, count = tmp_path / "patched", scaled(20_000, 6_000)
    done = ftpatch("watch", program, "stock:-w-", *SMALL, "-o", traced)
    assert done.code == 0, done.err
    files = _run(traced, tmp_path, 1, 1, count)
    rows = _rows(files[-1])
    (end,) = [row for row in rows if "errno" in row]
    if end["errno"]:
        pytest.skip("the kernel sets no watches here")
    seen = [int(row["new"], 16) for row in rows if "time" in row]
    assert seen == list(range(count - len(seen), count)) and len(files) >= 3
    assert len(seen) + _gone(rows) == count and end["hits"] == count and not end["missed"]


def test_together_with_a_tracer(program: Path, tmp_path: Path) -> None:
    """Calls, hits and accesses of the same threads, each kind complete."""
    first, traced, count = tmp_path / "first", tmp_path / "patched", scaled(30_000, 8_000)
    words = ("--tracer", "function_graph", "-f", "sell", "--size", "128K", "--rotate", "999")
    assert ftpatch("enable", program, *words, "-o", first).code == 0
    done = ftpatch("probe", first, "p sell n=$arg1:s64", "-o", traced)
    assert done.code == 0, done.err
    files = _run(traced, tmp_path, 3, count, 0)
    assert len(files) > 3
    rows = _rows(files[0])
    assert sum(row.get("event") == "entry" for row in rows) == 3 * count
    assert sum("probe" in row and "time" in row for row in rows) == 3 * count
    assert len({row["tid"] for row in rows if "time" in row}) == 3


def test_together_the_oldest_are_counted(program: Path, tmp_path: Path) -> None:
    first, traced, count = tmp_path / "first", tmp_path / "patched", scaled(40_000, 20_000)
    assert ftpatch("probe", program, "p sell n=$arg1:s64", *SMALL, "-o", first).code == 0
    words = ("--tracer", "function", "-f", "sell", "-o", traced)
    assert ftpatch("enable", first, *words).code == 0
    files = _run(traced, tmp_path, 3, count, 0)
    assert 3 <= len(files) <= 5
    rows = _rows(files[0])
    shown = sum("time" in row for row in rows)
    assert shown + _gone(rows) == 2 * 3 * count


def test_histograms_are_in_one_file(program: Path, tmp_path: Path) -> None:
    """Said before anything is written, and by the program where the environment asks for it."""
    out, hist = tmp_path / "out", "p sell n=$arg1:u64 hist:keys=n.log2"
    done = ftpatch("probe", program, hist, *SMALL, "-o", out)
    assert done.code == 2 and "--rotate" in done.err and done.err.count("\n") == 1
    assert not out.exists()
    assert ftpatch("probe", program, hist, "-o", out).code == 0
    environment = {**os.environ, "FTPATCH_TRACE": str(tmp_path / "t"), "FTPATCH_TRACE_ROTATE": "2"}
    done_ = subprocess.run(
        [out, "1", "9", "0"], env=environment, check=True, capture_output=True, text=True
    )
    assert done_.stderr.count("\n") == 1 and "a histogram is in one file" in done_.stderr


@pytest.mark.parametrize("keep", [True, False])
def test_under_trace(program: Path, tmp_path: Path, keep: bool) -> None:
    """Files have names, beside that of -o, or in a folder of their own until the report is made."""
    words = ("--tracer", "function", "-f", "sell", "--size", "64K", "--rotate", "2", "--json")
    kept = ("-o", tmp_path / "trace") if keep else ()
    done = ftpatch("trace", *words, *kept, program, "2", "20000", "0")
    assert done.code == 0, done.err
    rows = [*map(json.loads, done.out.splitlines())]
    shown = sum("event" in row for row in rows)
    assert shown + _gone(rows) == 40_000 and 0 < shown < 40_000
    assert bool([*tmp_path.glob("trace*")]) == keep


def test_processes_are_told_why_not(program: Path) -> None:
    for command in (
        ("trace", "--pid", "1", "--rotate", "2"),
        ("enable", "--pid", "1", "--rotate", "2"),
        ("probe", "--pid", "1", "p sell", "--rotate", "2"),
        ("watch", "--pid", "1", "stock:rw-", "--rotate", "2"),
    ):
        done = ftpatch(*command)
        assert done.code in (2, 125) and "--rotate" in done.err and done.err.count("\n") == 1
