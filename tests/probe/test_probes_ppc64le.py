# SPDX-License-Identifier: MIT
"""Probes in ppc64le programs, by gdb through qemu: the same hits, with the same values, at local
entries and at any instruction; flags, and what is below the stack pointer, stay."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from tests.support.command import ftpatch
from tests.support.regs_gdb import registers_by_gdb
from tests.support.tracer_programs import ARCHES, emulator, run
from tests.support.user_stubs import PROGRAM, compiled_program, functions_of

ARCH = "ppc64le"
FUNCTIONS = {"many": 8, "both": 2, "all": 2, "half": 0, "less": 2, "fib": 1}
"""Registers of their arguments: what is in others depends on the length of the program's path."""
NAMES = (*(f"r{n}" for n in range(3, 11)), "lr", "r1")
FORMS = {
    "O0": ("-O0",),
    "O2": ("-O2",),
    "Os": ("-Os", "-fpatchable-function-entry=0"),  # _savegpr0_29, _restgpr0_29
    "power10": ("-O2", "-mcpu=power10", "-fpatchable-function-entry=0"),
    "bare": ("-O1", "-fpatchable-function-entry=0"),
}
BEFORE = "-fpatchable-function-entry=2"
FLAGS = r"""
#include <stdio.h>
static long seen;
__attribute__((noipa)) long flagged(long a, long b, long *list)
{
	long kept, carry;

	__asm__ volatile("std %2, -288(1)\n\tcmpd cr0, %2, %3\n\tcmpd cr6, %3, %2\n\t"
		"addic %1, %2, -1\n\tmtctr %3\n\tflagged_here:\tstd %3, -8(1)\n\t"
		"mfcr %0\n\tsubfe %1, %2, %3\n\tstd %0, 0(%4)\n\tmfctr %0\n\t"
		"std %0, 8(%4)\n\tld %0, -288(1)\n\tstd %0, 16(%4)\n\t"
		"std %1, 24(%4)\n\tld %0, -8(1)"
		: "=&r"(kept), "=&r"(carry)
		: "b"(a), "b"(b), "b"(list)
		: "memory", "cr0", "cr6", "ctr", "xer");
	return kept + seen++;
}
int main(void)
{
	for (long i = -3; i < 4; i++) {
		long list[4];
		long told = flagged(i * 1000, i * i, list);

		printf("%lx %ld %ld %ld %ld\n", list[0] & 0xf00000f0, list[1], list[2], list[3], told);
	}
	return 0;
}
"""


def _reported(program: Path, *probes: str) -> list[dict[str, object]]:
    out, trace = program.with_name("out"), program.with_name("trace")
    done = ftpatch("probe", program, *probes, "-o", out, "--force")
    assert done.code == 0, done.err
    options = {"FTPATCH_TRACE": str(trace), "QEMU_CPU": "power10"}
    plain = run(program, cwd=program.parent, arch=ARCH, env={"QEMU_CPU": "power10"})
    ran = run(out, cwd=program.parent, arch=ARCH, env=options)
    assert (ran.status, ran.out) == (plain.status, plain.out) and ran.status == 0, str(ran)
    return [row for row in ftpatch("report", trace, "--json").json if "time" in row]


def _local_entries(program: Path) -> dict[str, int]:
    """Where calls from the same file come in, by the symbols' st_other."""
    with program.open("rb") as file:
        symbols = list(ELFFile(file).get_section_by_name(".symtab").iter_symbols())
    steps = {one.name: one["st_other"]["local"] for one in symbols}
    return {
        name: at + (1 << steps[name] if steps[name] > 1 else 0)
        for name, at in functions_of(program).items()
    }


@pytest.mark.parametrize("form", FORMS)
def test_registers_are_what_gdb_sees(form: str, tmp_path: Path) -> None:
    program = compiled_program(ARCH, tmp_path, *FORMS[form])
    places = {name: at for name, at in _local_entries(program).items() if name in FUNCTIONS}
    seen, _ = registers_by_gdb(program, places, NAMES, [*emulator(ARCH), "-cpu", "power10"])
    fetched = " ".join(f"{name}=%{name}" for name in NAMES)
    rows = _reported(program, *(f"p:{name} {name} {fetched}" for name in FUNCTIONS))
    entries = [(name, held) for kind, name, held in seen if kind == 0]
    assert len(rows) == len(entries) > 15
    for row, (name, held) in zip(rows, entries, strict=True):
        assert row["probe"] == name
        values = {key: int(str(value), 0) for key, value in dict(row["values"]).items()}  # type: ignore[call-overload]
        apart = values["r1"] - held["r1"]  # of the environment
        for one in (*NAMES[: FUNCTIONS[name]], "lr", "r1"):
            assert values[one] - held[one] in (0, apart), (name, one)


def test_results_and_floats(tmp_path: Path) -> None:
    program = compiled_program(ARCH, tmp_path, "-O1")
    rows = _reported(
        program,
        "p:half half of=%f1:f64 n=$arg2:s32",
        "r:halved half v=%f1:f64",
        "r:fib fib v=$retval:s32",
        "r:many many v=$retval:s64",
        "p:ninth many last=+96($stack):s64 c=+0($arg4):s8",
    )
    values = [(row["probe"], dict(row["values"])) for row in rows]  # type: ignore[call-overload]
    assert ("half", {"of": 3.5, "n": 2}) in values and ("halved", {"v": 3.75}) in values
    assert ("ninth", {"last": 9, "c": 3}) in values
    assert ("many", {"v": 1 - 2 + 3 + 3 + (1 << 31) + 6 - 7 + 8 + 9}) in values
    assert [held["v"] for name, held in values if name == "fib"][-1] == 5


@pytest.mark.parametrize("form", ["O2", "Os", "power10"])
def test_every_instruction_of_a_function(form: str, tmp_path: Path) -> None:
    """Probes at all of them at once, and the program does what it did."""
    program = compiled_program(ARCH, tmp_path, *FORMS[form], "-fpatchable-function-entry=0")
    start, entry = functions_of(program)["fib"], _local_entries(program)["fib"]
    text = subprocess.run(
        ["powerpc64le-linux-gnu-objdump", "-d", "--disassemble=fib", program],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    shown = [line for line in text.splitlines() if line.startswith("   ") and ".long" not in line]
    lines = [line.split(":")[0] for line in shown if "\t" in line.strip()]
    places = [at for at in (int(line, 16) for line in lines) if at >= entry]
    probes = [f"p:at{at - start} fib+{at - start}" for at in places if at > entry]
    rows = _reported(program, "p:entry fib", "r:back fib n=$retval:s32", *probes)
    hit = {str(row["probe"]) for row in rows}
    assert {"entry", "back"} <= hit and len(hit) > len(probes) * 3 // 4
    counts = [sum(row["probe"] == name for row in rows) for name in ("entry", "back")]
    assert counts[0] == counts[1] > 7


def test_pads_in_front_of_a_global_entry(tmp_path: Path) -> None:
    """gcc 12 leaves them there, where calls from the same file do not pass."""
    source, program = tmp_path / "prog.c", tmp_path / "prog"
    source.write_text(PROGRAM)
    words = ["-O1", "-static", "-fno-pie", BEFORE, str(source), "-o", str(program)]
    subprocess.run([ARCHES[ARCH].gcc, *words], check=True)
    rows = _reported(program, "p:fib fib", "r:back fib")
    assert sum(row["probe"] == "fib" for row in rows) == len(rows) // 2 == 15


def test_flags_and_memory_below_the_stack_pointer(tmp_path: Path) -> None:
    source, program = tmp_path / "flags.c", tmp_path / "flags"
    source.write_text(FLAGS)
    subprocess.run([ARCHES[ARCH].gcc, "-O1", source, "-o", program], check=True)
    with program.open("rb") as file:
        (here,) = ELFFile(file).get_section_by_name(".symtab").get_symbol_by_name("flagged_here")
    at = here["st_value"]
    probes = [f"p:p{n} {at + 4 * n:#x} ctr=%ctr cr=%ccr xer=%xer" for n in range(6)]
    rows = _reported(program, *probes, "p:first flagged", "r:last flagged")
    assert len(rows) == 7 * 8
    first = next(dict(row["values"]) for row in rows if row["probe"] == "p0")  # type: ignore[call-overload]
    assert int(first["ctr"], 0) == 9 and int(first["cr"], 0) & 0xF00000F0 == 0x8000_0040


def test_behind_what_capstone_does_not_know(tmp_path: Path) -> None:
    """Instructions with a prefix and scv are followed by others, but not the end of the code."""
    source, program = tmp_path / "own.c", tmp_path / "own"
    source.write_text(
        "int own = 5; __attribute__((noipa)) int more(int n) { own += n; return own * n; }\n"
        "int main(void) { return more(3) != 24; }\n"
    )
    words = ["-O1", "-mcpu=power10", "-mpcrel", str(source), "-o", str(program)]
    subprocess.run([ARCHES[ARCH].gcc, *words], check=True)
    rows = _reported(program, "p:second more+8 n=%r3", "r:more more v=$retval:s32")
    assert [dict(row["values"]) for row in rows] == [{"n": "0x3"}, {"v": 24}]  # type: ignore[call-overload]
    for step, what in ((4, "boundary"), (0x38, "boundary")):
        done = ftpatch("probe", program, f"p more+{step}", "-o", tmp_path / "out", "--force")
        assert done.code == 2 and (what in done.err or "bytes, not" in done.err), done.err


def test_no_traps(tmp_path: Path) -> None:
    program = compiled_program(ARCH, tmp_path, "-fpatchable-function-entry=0")
    done = ftpatch("probe", program, "p fib", "--no-optimize", "-o", tmp_path / "out")
    assert done.code == 2 and "traps are not supported on ppc64le" in done.err
