# SPDX-License-Identifier: MIT
"""Names of the source in probes on s390x: what a program prints of its arguments. Values are at the
right end of their registers and words, whose first byte is the highest."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.tracer_programs import ARCHES, run

SOURCE = r"""
#include <stdio.h>
struct big { long a[3]; int x; };
struct alone { double d; };
union either { int i; float f; };
__attribute__((noinline)) int many(int a, struct big b, struct alone c, short d, long e, char f,
	short g, unsigned char h, int i, long j, float k, double l, float m, double n, union either o)
{
	printf("a=%d x=%d cd=%g d=%d e=%ld f=%d g=%d h=%d i=%d j=%ld k=%g l=%g m=%g n=%g o=%d\n",
		a, b.x, c.d, d, e, f, g, h, i, j, k, l, m, n, o.i);
	return a - b.x;
}
__attribute__((noinline)) double half(double of) { return of / 2; }
int main(int argc, char **argv)
{
	struct big b = {{1, 2, 3}, 43 + argc};
	struct alone c = {4.5 + argc};
	union either o = {98 + argc};

	printf("%g\n", half(argc + 6));
	return many(-argc, b, c, -3, 1L << 40, 'x', -7, 200, -9, 1L << 41, 1.5f, 2.5, 3.5f, 4.5,
			o)
		+ 45;
}
"""
TAKEN = "a b.x cd=c.d d e f g h i j k l m n o=o.i"


@pytest.mark.parametrize("level", ["-O0", "-O1", "-O2"])
def test_arguments_are_what_the_program_prints(level: str, tmp_path: Path) -> None:
    source, program, out = (tmp_path / name for name in ("p.c", "p", "out"))
    source.write_text(SOURCE)
    command: list[str | Path] = [ARCHES["s390x"].gcc, level, "-g", "-static", source, "-o", program]
    subprocess.run(command, check=True)
    probes = (f"p:many many {TAKEN}", "r:left many v=$retval:s32", "r:half half v=$retval")
    assert ftpatch("probe", program, *probes, "-o", out).code == 0
    trace = tmp_path / "trace"
    ran = run(out, cwd=tmp_path, arch="s390x", env={"FTPATCH_TRACE": str(trace)})
    assert ran.status == 0, str(ran)
    half, printed = ran.out.decode().splitlines()
    wanted = {name: float(value) for name, value in re.findall(r"(\w+)=(\S+)", printed)}
    rows = [row for row in ftpatch("report", trace, "--json").json if "values" in row]
    values = {row["probe"]: dict(row["values"]) for row in rows}
    many = {name: float(value) for name, value in values["many"].items()}
    assert many == wanted and len(many) == 15
    assert values["left"] == {"v": -45}
    assert half == "3.5" and values["half"]["v"] == 3.5
