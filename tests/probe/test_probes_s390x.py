# SPDX-License-Identifier: MIT
"""Probes in s390x programs: what is executed from elsewhere has none, and stacks end where only a
floating-point register knows the caller."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.tracer_programs import ARCHES, run

ARCH = "s390x"
EXECUTED = r"""
#include <stdio.h>
#include <string.h>
__attribute__((noinline, noclone)) int filled(char *room, int n, int byte)
{
        memset(room, byte, n);
        return room[n - 1] + n;
}
__attribute__((noinline, noclone)) int by_register(char *to, const char *from, int n)
{
        __asm__ __volatile__("larl 1, 1f\n\tex %0, 0(1)\n\tj 2f\n1:\tmvc 0(1,%1), 0(%2)\n2:"
                             : : "a"(n), "a"(to), "a"(from) : "1", "memory");
        return to[n];
}
int main(void)
{
        char room[600], name[] = "s390x";

        for (int n = 1; n < 600; n += 100)
                printf("%d\n", filled(room, n, n & 15));
        return by_register(room, name, 4) != 'x';
}
"""
HELD = r"""
#include <stdio.h>
__attribute__((noinline, noclone)) long leaf(long n)
{
        __asm__ __volatile__("lgfi %%r14, 0x55\n\tlgfi %%r13, 3\n\tagr %0, %%r14\n\tagr %0, %%r13"
                             : "+d"(n) : : "r13", "r14", "cc");
        return n;
}
__attribute__((noinline, noclone)) long up(long n) { return n ? up(n - 1) + 1 : leaf(n) * 3; }
int main(void)
{
        printf("%ld\n", up(2));
        return 0;
}
"""


def _built(folder: Path, source: str, *flags: str) -> Path:
    program = folder / "prog"
    (folder / "prog.c").write_text(source)
    words = [ARCHES[ARCH].gcc, *flags, "-static", str(folder / "prog.c"), "-o", str(program)]
    subprocess.run(words, check=True)
    return program


def _lines(program: Path, name: str) -> list[tuple[int, str]]:
    """A function's instructions, by address."""
    words = ["s390x-linux-gnu-objdump", "-d", f"--disassemble={name}", str(program)]
    text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^ *([0-9a-f]+):\t[0-9a-f ]+\t(.*)$", text, re.MULTILINE)
    return [(int(at, 16), insn) for at, insn in found]


@pytest.mark.parametrize("flags", ["-O2 -march=z10", "-O2 -march=z14", "-O1", "-Os"])
def test_what_is_executed_from_elsewhere(flags: str, tmp_path: Path) -> None:
    """A jump there would run by `ex`, which changes its second byte. All other places have a probe
    each, or are refused, and the program does what it did."""
    program = _built(tmp_path, EXECUTED, *flags.split())
    plain, out = run(program, cwd=tmp_path, arch=ARCH), tmp_path / "out"
    refused = 0
    for name in ("filled", "by_register"):
        lines = _lines(program, name)
        named = [re.search(r"^(?:exrl|larl)\s.*,([0-9a-f]+) <", insn) for _, insn in lines]
        executed = {int(one[1], 16) for one in named if one}
        for at, insn in lines[1:]:
            done = ftpatch("probe", program, f"p:at {at:#x}", "-o", out, "--force")
            if at in executed:
                assert done.code == 2 and "executed by an instruction elsewhere" in done.err, insn
                refused += 1
            elif done.code == 0:
                ran = run(out, cwd=tmp_path, arch=ARCH, env={"FTPATCH_TRACE": str(tmp_path / "t")})
                assert (ran.status, ran.out) == (plain.status, plain.out), insn
    assert refused >= 1


def test_a_caller_in_a_floating_point_register(tmp_path: Path) -> None:
    """Leaf functions put what they are to keep there (DW_CFA_register); no copy has those."""
    program = _built(tmp_path, HELD, "-O1")
    lines = _lines(program, "leaf")
    start = lines[0][0]
    assert lines[1][1].startswith("ldgr") and lines[6][1].startswith("lgdr"), lines
    inside = [lines[row][0] - start for row in (2, 3)]
    probes = ["p:entry leaf stack", *(f"p:at{step} leaf+{step} stack" for step in inside)]
    out, trace = tmp_path / "out", tmp_path / "trace"
    done = ftpatch("probe", program, *probes, "-o", out)
    assert done.code == 0, done.err
    ran = run(out, cwd=tmp_path, arch=ARCH, env={"FTPATCH_TRACE": str(trace)})
    assert (ran.status, ran.out) == (0, b"%d\n" % ((0x55 + 3) * 3 + 2))
    rows = {row["probe"]: row for row in ftpatch("report", trace, "--json").json if "time" in row}
    assert [text.split("+")[0] for text in rows["entry"]["stack"][:5]] == [
        *("leaf", "up", "up", "up", "main")
    ]
    assert not rows["entry"].get("stack_cut")
    cut = [row for name, row in rows.items() if name.startswith("at")]
    assert len(cut) == 2 and all(len(row["stack"]) == 1 and row["stack_cut"] for row in cut)


@pytest.mark.parametrize("words", ["p up stack:fp", "p up hist:keys=stack:fp"])
def test_frames_are_not_linked(words: str, tmp_path: Path) -> None:
    done = ftpatch("probe", _built(tmp_path, HELD, "-O2"), words, "-o", tmp_path / "out")
    assert done.code == 2 and "do not lead to one another" in done.err, done.err
