# SPDX-License-Identifier: MIT
"""Floats and doubles in memory: gdb prints the same values, in the same program."""

from __future__ import annotations

import json
import math
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftpatch.probe.text import format_value
from tests.support.command import ftpatch
from tests.support.tracer_programs import run

SOURCE = r"""
#include <math.h>
struct item { int sku; double price; float rate; float grid[2][2]; };
double total = 1e22;
float share = 0.1f;
static volatile int sink;
__attribute__((noinline, noipa)) int sell(struct item *item, float *rates, double *costs)
{
        sink = item->sku + rates[0] + costs[1];
        total = -total / 3;
        share *= 3;
        return sink;
}
int main(void)
{
        struct item some[] = {{1, 2.5, -0.1f, {{1, 2}, {3, 1e-20f}}}, {2, 1e300, 0, {{0}}},
                              {3, INFINITY, -INFINITY, {{0}}}, {4, 5e-324, 1e-45f, {{0}}}};
        float rates[] = {0.3f, 16777216};
        double costs[] = {1 / 3.0, -0.0};
        for (int i = 0; i < 4; i++)
                sell(&some[i], rates, costs);
        return 0;
}
"""
NAMES = ("item->price", "item->rate", "item->grid[1][1]", "rates[1]", "*rates", "costs[0]",
         "costs[1]", "total", "share")  # fmt: skip
COMPILERS = [(compiler, level) for compiler in ("gcc", "clang") for level in ("-O0", "-O2")]


def _built(folder: Path, *words: str) -> Path:
    (folder / "cart.c").write_text(SOURCE)
    program = folder / "cart"
    subprocess.run([*words, "-g", "cart.c", "-o", program], check=True, cwd=folder)
    return program


def _recorded(program: Path, probe: str, *words: str) -> str:
    out, trace = program.with_name("out"), program.with_name("trace")
    done = ftpatch("probe", program, probe, "-o", out, "--force")
    assert done.code == 0, done.err
    trace.unlink(missing_ok=True)
    run(out, cwd=program.parent, env={"FTPATCH_TRACE": str(trace)})
    return ftpatch("report", trace, *words).out


def _values(text: str) -> list[dict[str, object]]:
    def never(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    rows = [json.loads(line, parse_constant=never) for line in text.splitlines()]
    return [row["values"] for row in rows if "time" in row]


def _gdb(program: Path, names: tuple[str, ...]) -> list[str]:
    """What gdb prints at each call."""
    prints = [word for name in names for word in ("-ex", f"print {name}")]
    calls = [word for _ in range(4) for word in (*prints, "-ex", "continue")]
    words = ["gdb", "-nx", "-q", "-batch", "-ex", "break *sell", "-ex", "run", *calls, str(program)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    return re.findall(r"^\$\d+ = (.*)", done.stdout, re.M)


@pytest.mark.parametrize(("compiler", "level"), COMPILERS)
def test_gdb_prints_the_same(compiler: str, level: str, tmp_path: Path) -> None:
    program = _built(tmp_path, compiler, level)
    # At the first instruction, gdb knows no parameters of an unoptimised function.
    names = NAMES if level == "-O2" else ("total", "share")
    fetches = " ".join(f"v{n}={name}" for n, name in enumerate(names))
    rows = _values(_recorded(program, f"p:a sell {fetches}", "--json"))
    mine = [float(str(value)) for row in rows for value in row.values()]
    theirs = [float(value) for value in _gdb(program, names)]
    singles = ("rate", "grid", "share")
    kinds = [np.float32 if any(s in name for s in singles) else np.float64 for name in names] * 4
    assert len(mine) == len(theirs) == 4 * len(names)
    pairs = zip(kinds, mine, theirs, strict=True)
    assert not [(one, other) for kind, one, other in pairs if kind(one) != kind(other)]


def test_forms_of_reports(tmp_path: Path) -> None:
    program = _built(tmp_path, "gcc", "-O2")
    probe = "p:a sell +8($arg1):f64 +16($arg1):f32 lost=+0(\\16):f64 @share:f32"
    text = _recorded(program, probe)
    assert "arg1=2.5 arg2=-0.1 lost=(fault) arg4=0.1" in text
    assert "arg1=inf arg2=-inf lost=(fault)" in text
    rows = _values(_recorded(program, probe, "--json"))
    assert [row["arg1"] for row in rows] == [2.5, 1e300, "inf", 5e-324]
    assert [row["lost"] for row in rows] == [None] * 4
    profile = _recorded(program, probe, "--format", "profile")
    assert re.search(r"^ +1 +2\.5$", profile, re.M)
    assert (
        b"2.5"
        in subprocess.run(
            ["strings", "-n", "3", _perfetto(program)], capture_output=True, check=True
        ).stdout
    )


def _perfetto(program: Path) -> Path:
    out = program.with_name("out.perfetto")
    done = ftpatch("report", program.with_name("trace"), "--format", "perfetto", "-o", out)
    assert done.code == 0, done.err
    return out


@given(st.floats(), st.floats(width=32))
def test_the_decimal_gives_back_the_value(wide: float, narrow: float) -> None:
    for kind, value, bits in (
        ("f64", wide, np.float64(wide).view(np.uint64)),
        ("f32", narrow, np.float32(narrow).view(np.uint32)),
    ):
        again = float(format_value(kind, int(bits)))
        again = float(np.float32(again)) if kind == "f32" else again
        assert again == value or (math.isnan(again) and math.isnan(value))


def test_kernels_have_no_floats(tmp_path: Path) -> None:
    program = _built(tmp_path, "gcc", "-O2")
    done = ftpatch("probe", program, "p:a sell +8($arg1):f64", "--print-events")
    assert done.code and "a kernel's probes have no floats: 'f64' at column 20" in done.err
    assert "write x64 for its bits" in done.err
