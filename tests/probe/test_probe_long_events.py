# SPDX-License-Identifier: MIT
"""Events of any length are all recorded, with their values, wherever in a chunk they begin."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.tracer_programs import run

CALLS, THREADS = 2000, 3
SOURCE = f"""
#include <pthread.h>
#define NOINLINE __attribute__((noinline, noipa))
NOINLINE void said(int n, const char *text, const char *other) {{ __asm__ volatile(""); }}
NOINLINE void counted(int n) {{ __asm__ volatile(""); }}
static void *worker(void *unused)
{{
    for (int n = 0; n < {CALLS}; n++) {{
        said(n, "a text of this thread", n % 2 ? "odd" : "even");
        if (n % 3 == 0)
            counted(n);
    }}
    return 0;
}}
int main(void)
{{
    pthread_t threads[{THREADS}];
    for (int i = 0; i < {THREADS}; i++) pthread_create(threads + i, 0, worker, 0);
    for (int i = 0; i < {THREADS}; i++) pthread_join(threads[i], 0);
    return 0;
}}
"""


@pytest.mark.parametrize("strings", [1, 3, 7])
def test_all_are_recorded(strings: int, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(SOURCE)
    program, out, trace = (tmp_path / name for name in ("a", "out", "trace"))
    subprocess.run(["gcc", "-O1", tmp_path / "a.c", "-o", program, "-pthread"], check=True)
    texts = " ".join(f"t{n}=$arg{2 + n % 2}:string" for n in range(strings))
    probes = (f"p:said said n=$arg1:s32 {texts}", "p:counted counted n=$arg1:s32")
    assert ftpatch("probe", program, *probes, "-o", out).code == 0
    assert run(out, [], cwd=tmp_path, env={"FTPATCH_TRACE": str(trace)}).status == 0
    done = ftpatch("report", trace, "--json")
    sums = {row["probe"]: (row["hits"], row["missed"]) for row in done.json if "hits" in row}
    rows = [row["values"] for row in done.json if row.get("probe") == "said" and "values" in row]
    assert not done.err
    thirds = len(range(0, CALLS, 3))
    assert sums == {"said": (THREADS * CALLS, 0), "counted": (THREADS * thirds, 0)}
    expected = ["a text of this thread", ("even", "odd")]
    for values in rows:
        other = expected[1][values["n"] % 2]
        assert [values[f"t{n}"] for n in range(strings)] == [expected[0], other] * (
            strings // 2
        ) + [expected[0]] * (strings % 2)
    assert sorted(values["n"] for values in rows) == sorted([*range(CALLS)] * THREADS)
