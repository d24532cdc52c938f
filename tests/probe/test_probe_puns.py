# SPDX-License-Identifier: MIT
"""Punned jumps: functions that have no room for other ones, and what the kernel loads of them."""

from __future__ import annotations

import re
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from ftpatch.image import open_image
from ftpatch.probe.read_back import injected_probes
from tests.support.command import PATIENCE, ftpatch

HEAD = """
.globl main
.type main, @function
main:
    .cfi_startproc
    push %rbx
    .cfi_adjust_cfa_offset 8
    xor %ebx, %ebx
"""
CALL = """
    mov ${n}, %edi
    call f{n}
    add %eax, %ebx
"""
TAIL = """
    mov %ebx, %esi
    lea text(%rip), %rdi
    xor %eax, %eax
    call printf@PLT
    xor %eax, %eax
    pop %rbx
    .cfi_adjust_cfa_offset -8
    ret
    .cfi_endproc
    .size main, . - main
.section .rodata
text: .asciz "%u\\n"
.section .note.GNU-stack
.text
"""
# Each ends by a jump that no one can follow; the second instruction is a loop's target.
FUNCTION = """
.balign 16
.type f{n}, @function
f{n}:
    .cfi_startproc
    push %rcx
    .cfi_adjust_cfa_offset 8
1:  mov ${number:#x}, %eax
    add %edi, %eax
    dec %edi
    jg 1b
    lea 2f(%rip), %rdx
    jmp *%rdx
2:  pop %rcx
    .cfi_adjust_cfa_offset -8
    ret
    .cfi_endproc
    .size f{n}, . - f{n}
"""


def _program(folder: Path, count: int, step: int, *flags: str, function: str = FUNCTION) -> Path:
    """A program of ``count`` functions, whose punned jumps are ``step`` bytes apart."""
    source, program = folder / "p.S", folder / "program"
    functions = [function.format(n=n, number=0x100000 + n * step) for n in range(count)]
    calls = [CALL.format(n=n) for n in range(count)]
    source.write_text("".join([".text\n", *functions, HEAD, *calls, TAIL]))
    subprocess.run(["gcc", *flags, str(source), "-o", str(program)], check=True)
    return program


def _run(program: Path, **environment: str) -> tuple[bytes, int]:
    done = subprocess.run(
        [program],
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        env={"FTPATCH_TRACE": str(program.with_name("trace")), **environment},
    )
    return done.stdout, done.returncode


def _loads(program: Path) -> list[tuple[int, int, str]]:
    """Start, end and flags of the PT_LOADs, as readelf has them."""
    told = subprocess.run(
        ["readelf", "-lW", program], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split() for line in told.splitlines() if line.split()[:1] == ["LOAD"]]
    return [
        (int(row[2], 16), int(row[2], 16) + int(row[5], 16), "".join(row[6:-1])) for row in rows
    ]


@pytest.mark.parametrize("flags", [["-pie"], ["-no-pie"], ["-static"], ["-static-pie"]])
def test_it_does_what_it_did(flags: list[str], tmp_path: Path) -> None:
    count, out = 40, tmp_path / "out"
    program = _program(tmp_path, count, 0x7311, *flags)
    subprocess.run(["strip", "-o", tmp_path / "bare", program], check=True)
    names = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in names.splitlines()]
    at = {row[2]: int(row[0], 16) for row in rows if row[2:] and row[2][1:].isdigit()}
    places = [f"0x{at[f'f{n}']:x}" for n in range(count)]
    probes = [f"p:e{n} {place} n=$arg1:s32" for n, place in enumerate(places)]
    probes += [f"r:r{n} {place} ret=$retval:u32" for n, place in enumerate(places)]
    done = ftpatch("probe", tmp_path / "bare", *probes, "-o", out, "--json")
    assert done.code == 0, done.err
    assert [row["way"] for row in done.json].count("pun") == 2 * count
    expected = _run(tmp_path / "bare")
    assert expected[1] == 0 and _run(out) == expected
    report = ftpatch("report", tmp_path / "trace", "--json").json
    sums = {row["probe"]: row for row in report if "hits" in row}
    assert all((row["hits"], row["missed"], row["way"]) == (1, 0, "pun") for row in sums.values())
    assert len(sums) == 2 * count
    values = {row["probe"]: row["values"] for row in report if "values" in row}
    assert values["e7"] == {"n": 7}
    assert sum(values[f"r{n}"]["ret"] for n in range(count)) % (1 << 32) == int(expected[0])
    shown = ftpatch("probe", out, "--json").json
    assert {row["way"] for row in shown} == {"pun"} and len(shown) == 2 * count
    assert len(injected_probes(open_image(out)) or ()) == 2 * count
    loads = _loads(out)
    assert loads == sorted(loads), "sorted, as the ABI demands"
    assert all(one[1] <= after[0] & ~0xFFF for one, after in pairwise(loads))
    assert not any("W" in flags and "E" in flags for _, _, flags in loads)
    assert ftpatch("undo", out, "-o", tmp_path / "back").code == 0
    assert (tmp_path / "back").read_bytes() == (tmp_path / "bare").read_bytes()


# A jump, behind which nothing gives way; its only punned one goes almost anywhere.
SCATTERED = """
.balign 16
.type f{n}, @function
f{n}:
    .cfi_startproc
    jmp 1f
1:  mov ${number:#x}|0x8000, %eax
    add %edi, %eax
    lea 2f(%rip), %rdx
    jmp *%rdx
2:  ret
    .cfi_endproc
    .size f{n}, . - f{n}
"""


def test_functions_that_begin_alike_share_segments(tmp_path: Path) -> None:
    """There are fewer program headers than pages with hops."""
    count, out = 150, tmp_path / "out"
    program = _program(tmp_path, count, 0x1011)
    probes = [f"p:e{n} f{n}" for n in range(count)]
    done = ftpatch("probe", program, *probes, "-o", out, "--json")
    assert done.code == 0, done.err
    assert {row["way"] for row in done.json} == {"pun"}
    _require_page_of_headers(out)
    assert _run(out) == _run(program)
    report = ftpatch("report", tmp_path / "trace", "--json").json
    assert [row["hits"] for row in report if "hits" in row] == [1] * count


def _require_page_of_headers(program: Path) -> None:
    """Before 6.17 Linux takes a page of them: ``size > ELF_MIN_ALIGN`` in load_elf_phdrs()."""
    told = subprocess.run(["readelf", "-hW", program], capture_output=True, text=True, check=True)
    header = dict(re.findall(r"(Size|Number) of program headers: +(\d+)", told.stdout))
    size = int(header["Size"]) * int(header["Number"])
    assert 4096 - 4 * 56 < size <= 4096, "and nearly all are used"


def test_no_more_program_headers_than_linux_takes(tmp_path: Path) -> None:
    count, out = 150, tmp_path / "out"
    program = _program(tmp_path, count, 0xBB13, function=SCATTERED)
    probes = [f"p:e{n} f{n}" for n in range(count)]
    done = ftpatch("probe", program, *probes, "-o", out, "--json")
    assert done.code == 0, done.err
    ways = [row["way"] for row in done.json]
    assert ways.count("pun") > 40 and ways.count("trap") == count - ways.count("pun") > 0
    _require_page_of_headers(out)
    assert any("no place" in row["reason"] for row in done.json if row["way"] == "trap")
    expected = _run(program)
    assert expected[1] == 0 and _run(out) == expected
    report = ftpatch("report", tmp_path / "trace", "--json").json
    assert [row["hits"] for row in report if "hits" in row] == [1] * count


# What the punned jump shares bytes with would have it go below the program; it begins a loop.
EVICTING = """
.balign 16
.type f{n}, @function
f{n}:
    .cfi_startproc
    push %rbp
    .cfi_adjust_cfa_offset 8
    push %rbx
    .cfi_adjust_cfa_offset 8
1:  sub $1, %rdi
    jg 1b
    mov ${number:#x}, %eax
    sub %edi, %eax
    lea 2f(%rip), %rdx
    jmp *%rdx
2:  pop %rbx
    .cfi_adjust_cfa_offset -8
    pop %rbp
    .cfi_adjust_cfa_offset -8
    ret
    .cfi_endproc
    .size f{n}, . - f{n}
"""


@pytest.mark.parametrize("flags", [["-pie"], ["-no-pie"], ["-static"], ["-static-pie"]])
def test_the_instruction_behind_gives_way(flags: list[str], tmp_path: Path) -> None:
    count, out = 20, tmp_path / "out"
    program = _program(tmp_path, count, 0x7311, *flags, function=EVICTING)
    probes = [f"{kind}:{kind}{n} f{n}" for n in range(count) for kind in "pr"]
    done = ftpatch("probe", program, *probes, "-o", out, "--json")
    assert done.code == 0, done.err
    assert {row["way"] for row in done.json} == {"pun"}
    expected = _run(program)
    assert expected[1] == 0 and _run(out) == expected
    report = ftpatch("report", tmp_path / "trace", "--json").json
    assert [row["hits"] for row in report if "hits" in row] == [1] * 2 * count
    assert ftpatch("undo", out, "-o", tmp_path / "back").code == 0
    assert (tmp_path / "back").read_bytes() == program.read_bytes()


def test_a_pun_ends_before_the_next_probe(tmp_path: Path) -> None:
    """Its bytes are the next instruction's, which another probe replaces."""
    program, out = _program(tmp_path, 2, 0x7311), tmp_path / "out"
    done = ftpatch("probe", program, "p:a f1", "p:b f1+1", "-o", out, "--json")
    assert done.code == 0, done.err
    assert [row["way"] for row in done.json] == ["trap", "pun"]
    assert _run(out) == _run(program)
    report = ftpatch("report", tmp_path / "trace", "--json").json
    assert {row["probe"]: row["hits"] for row in report if "hits" in row} == {"a": 1, "b": 1}


HEAP = """
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
unsigned f0(int);
static int grow(long n)
{
    char *before = sbrk(n);
    memset(before, 1, n);
    return before != (char *)-1 && (char *)sbrk(0) >= before + n;
}
int main(void)
{
    for (int i = 0; i < 100; i++)
        if (!grow(1 << 20) || f0(i) < 0x123456)
            return 1;
    return !malloc(100000);
}
"""
ONE = FUNCTION.format(n=0, number=0x123456) + '.section .note.GNU-stack,"",@progbits\n'


@pytest.mark.parametrize("flags", [["-pie", "-fPIE"], ["-no-pie"], ["-static"], ["-static-pie"]])
def test_the_heap_grows(flags: list[str], tmp_path: Path) -> None:
    """The kernel puts it behind the last segment, wherever that is."""
    code, source = tmp_path / "f.S", tmp_path / "p.c"
    code.write_text(".text\n.globl f0\n" + ONE)
    source.write_text(HEAP)
    program, out = tmp_path / "program", tmp_path / "out"
    subprocess.run(["gcc", *flags, code, source, "-o", program], check=True)
    done = ftpatch("probe", program, "p f0", "-o", out, "--json")
    assert done.code == 0 and done.only["way"] == "pun", done.err
    assert _run(out) == _run(program) == (b"", 0)


UNWINDING = """
struct bases { void *text, *data, *function; } found;
const void *_Unwind_Find_FDE(void *, struct bases *);
extern unsigned char f0[];
int main(void)
{
    unsigned char *hop = f0 + 5 + *(int *)(f0 + 1);
    if (f0[0] != 0xe9 || hop[0] != 0xe9)
        return 2;
    if (!_Unwind_Find_FDE(hop, &found) || found.function != hop)
        return 3;
    return 0;
}
"""


EVICTED = """
struct bases { void *text, *data, *function; } found;
const void *_Unwind_Find_FDE(void *, struct bases *);
extern unsigned char f0[];
static unsigned char *target(unsigned char *at)
{
    while (*at == 0x2e)
        at++;
    return *at == 0xe9 ? at + 5 + *(int *)(at + 1) : 0;
}
int main(void)
{
    unsigned char *hop = target(f0 + 2), *there = hop ? target(hop) : 0;
    if (f0[0] != 0xe9 || f0[1] != 0x53 || !there)
        return 2;
    if (!_Unwind_Find_FDE(hop, &found) || found.function != hop)
        return 3;
    if (!_Unwind_Find_FDE(there, &found) || found.function != there)
        return 4;
    return 0;
}
"""


def test_unwinders_know_what_gave_way(tmp_path: Path) -> None:
    code, source = tmp_path / "f.S", tmp_path / "p.c"
    program, out = tmp_path / "program", tmp_path / "out"
    one = EVICTING.format(n=0, number=0x123456) + '.section .note.GNU-stack,"",@progbits\n'
    code.write_text(".text\n.globl f0\n" + one)
    source.write_text(EVICTED)
    subprocess.run(["gcc", "-pie", "-fPIE", code, source, "-o", program, "-lgcc_s"], check=True)
    done = ftpatch("probe", program, "p f0", "-o", out, "--force", "--json")
    assert done.code == 0, done.err
    assert done.only["way"] == "pun"
    assert (_run(program)[1], _run(out)[1]) == (2, 0)


def test_unwinders_know_hops(tmp_path: Path) -> None:
    code, source = tmp_path / "f.S", tmp_path / "p.c"
    code.write_text(".text\n.globl f0\n" + ONE)
    source.write_text(UNWINDING)
    for flags in (["-pie", "-fPIE"], ["-no-pie"]):
        program, out = tmp_path / "program", tmp_path / "out"
        subprocess.run(["gcc", *flags, code, source, "-o", program, "-lgcc_s"], check=True)
        done = ftpatch("probe", program, "p f0", "-o", out, "--force", "--json")
        assert done.code == 0, done.err
        assert done.only["way"] == "pun"
        assert (_run(program)[1], _run(out)[1]) == (2, 0)


def test_the_plan_is_what_is_done(tmp_path: Path) -> None:
    program, out = _program(tmp_path, 3, 0x7311), tmp_path / "out"
    probes = ["p:a f1", "p:b f1+1", "r:c f2", "p:d main"]
    foreseen = ftpatch("probe", program, "--plan", *probes, "--json")
    assert foreseen.code == 0, foreseen.err
    done = ftpatch("probe", program, *probes, "-o", out, "--json")
    keys = ("name", "address", "way", "reason")
    assert [[row[key] for key in keys] for row in done.json] == [
        [row[key] for key in keys] for row in foreseen.json
    ]
    ways = {row["name"]: row["way"] for row in ftpatch("probe", program, "--plan", "--json").json}
    assert [ways[f"f{n}"] for n in range(3)] == ["pun"] * 3 and ways["main"] == "jump"
    summed = ftpatch("probe", program, "--plan").out
    assert f"{len(ways)} functions" in summed
    for way in set(ways.values()):
        assert f"  {way:4}  {[*ways.values()].count(way):7}" in summed
    named = ftpatch("probe", program, "--plan", "--regex", "p:of/* f[02]", "--json").json
    assert [(row["name"], row["way"]) for row in named] == [
        ("of/f0", "pun"),
        ("of/f2", "pun"),
    ]
    limited = ftpatch("probe", program, "--plan", "--limit", "2", "p:of/* f?")
    assert limited.code and "matches 3 functions" in limited.err
    refused = ftpatch("probe", program, "--plan", "p nothing")
    assert refused.code and "nothing" in refused.err and "\n" not in refused.err.strip()
