# SPDX-License-Identifier: MIT
"""Hits with stacks, followed while they are stored: an event is as long as a word of it says, which
is there before its first word is, wherever a look finds them."""

from __future__ import annotations

import os
import random
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftpatch.api.report_programs import Programs
from tests.support.command import ftpatch
from tests.support.following import Pace, follow, in_between, reported
from tests.support.trace_growing import TAKEN, GrowingFile, calls_behind, stores_of

SOURCE = r"""
#include <stdlib.h>

__attribute__((noinline, noclone)) int leaf(int n) { return n ? n * 3 : 0; }
__attribute__((noinline, noclone)) int deep(int n)
{
        void *volatile places[80];
        int below;

        for (int i = 0; i < 80; i++)
                places[i] = (void *)&places[i];
        below = n > 0 ? deep(n - 1) : leaf(n);
        return below + leaf(n + 1) + !places[n];
}
static int compared(const void *a, const void *b) { return leaf(*(int *)a - *(int *)b); }

int main(void)
{
        int numbers[] = {3, 1, 2};

        qsort(numbers, 3, sizeof(*numbers), compared);
        return deep(3) < 0;
}
"""
pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="stacks are x86-64's")


TOLD: list[str] = []
PROGRAMS = Programs(None, tell=TOLD.append)
HIT, VALUES, REGISTERS = 1, 1, 16
"""The type of hits; words before and behind the count of a stack's words (enum trace_calls)."""


def _behind(word: int, rest: bytes) -> int:
    if word & 7 != HIT:
        return calls_behind(word, rest)
    (count,) = struct.unpack_from("<I", rest, 8 * VALUES)
    return VALUES + 1 + REGISTERS + int(count)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of a probe with an argument and stacks of any size."""
    folder = tmp_path_factory.mktemp("stacks")
    (folder / "prog.c").write_text(SOURCE)
    subprocess.run(["gcc", "-O2", "prog.c", "-o", "prog"], cwd=folder, check=True)
    done = ftpatch("probe", folder / "prog", "p:l leaf n=$arg1:s32 stack", "-o", folder / "probed")
    assert done.code == 0, done.err
    trace = folder / "trace"
    subprocess.run([folder / "probed"], env={**os.environ, "FTPATCH_TRACE": str(trace)}, check=True)
    raw = trace.read_bytes()
    (begin,), (taken,) = struct.unpack_from("<I", raw, 12), struct.unpack_from("<Q", raw, TAKEN)
    trace.write_bytes(raw[: begin + taken])  # of what is empty behind, there are megabytes
    return trace


@given(st.lists(st.integers(0, 9), max_size=20), st.randoms())
def test_what_is_printed_is_the_report(
    tmp_path_factory: pytest.TempPathFactory,
    recorded: Path,
    steps: list[int],
    drawn: random.Random,
) -> None:
    path = tmp_path_factory.mktemp("grown") / "trace"
    raw = recorded.read_bytes()
    stores = stores_of(raw, _behind)
    assert max(len(store.raw) for store in stores) > 8 * 255, "of more words than one byte counts"
    grown = GrowingFile(path, raw, stores)
    with in_between([grown], drawn, 0.3):
        done = follow(path, Pace([grown], steps), "json", PROGRAMS.of)
    grown.close()
    assert path.read_bytes() == raw
    assert not done.error
    lines = [line for line in done.lines if '"stack"' in line]
    assert lines == [line for line in reported(path, "--json") if '"stack"' in line]
    assert len(lines) == 3 + 5 and any('"stack_cut"' not in line for line in lines)
