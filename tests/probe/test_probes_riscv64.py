# SPDX-License-Identifier: MIT
"""Probes in riscv64 programs, by gdb through qemu: the same hits, with the same values."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.regs_gdb import registers_by_gdb
from tests.support.tracer_programs import emulator, run
from tests.support.user_stubs import compiled_program, functions_of

ARCH = "riscv64"
FUNCTIONS = {"many": 8, "both": 2, "all": 2, "half": 1, "less": 2, "fib": 1}
"""Registers of their arguments: what is in others depends on the length of the program's path."""
NAMES = (*(f"a{n}" for n in range(8)), "ra", "sp")
FORMS = {
    "O0": ("-O0",),
    "O2": ("-O2",),
    "no-rvc": ("-O1", "-march=rv64g", "-mno-relax"),
    "saved": ("-O1", "-msave-restore"),
    "bare": ("-O1", "-fpatchable-function-entry=0"),
}


def _reported(program: Path, *probes: str) -> list[dict[str, object]]:
    out, trace = program.with_name("out"), program.with_name("trace")
    done = ftpatch("probe", program, *probes, "-o", out, "--force")
    assert done.code == 0, done.err
    plain = run(program, cwd=program.parent, arch=ARCH)
    ran = run(out, cwd=program.parent, arch=ARCH, env={"FTPATCH_TRACE": str(trace)})
    assert (ran.status, ran.out) == (plain.status, plain.out) and ran.status == 0, str(ran)
    return [row for row in ftpatch("report", trace, "--json").json if "time" in row]


@pytest.mark.parametrize("form", FORMS)
def test_registers_are_what_gdb_sees(form: str, tmp_path: Path) -> None:
    program = compiled_program(ARCH, tmp_path, *FORMS[form])
    places = {name: at for name, at in functions_of(program).items() if name in FUNCTIONS}
    seen, _ = registers_by_gdb(program, places, NAMES, emulator(ARCH))
    fetched = " ".join(f"{name}=%{name}" for name in NAMES)
    rows = _reported(program, *(f"p:{name} {name} {fetched}" for name in FUNCTIONS))
    entries = [(name, held) for kind, name, held in seen if kind == 0]
    assert len(rows) == len(entries) > 15
    for row, (name, held) in zip(rows, entries, strict=True):
        assert row["probe"] == name
        values = {key: int(str(value), 0) for key, value in dict(row["values"]).items()}  # type: ignore[call-overload]
        apart = values["sp"] - held["sp"]  # of the environment
        for one in (*NAMES[: FUNCTIONS[name]], "ra", "sp"):
            assert values[one] - held[one] in (0, apart), (name, one)


def test_results_and_floats(tmp_path: Path) -> None:
    program = compiled_program(ARCH, tmp_path, "-O1")
    rows = _reported(
        program,
        "p:half half of=%fa0:f64 n=$arg1:s32",
        "r:halved half v=%fa0:f64",
        "r:fib fib v=$retval:s32",
        "r:many many v=$retval:s64",
        "p:ninth many last=+0($stack):s64 c=+0($arg4):s8",
    )
    values = [(row["probe"], dict(row["values"])) for row in rows]  # type: ignore[call-overload]
    assert ("half", {"of": 3.5, "n": 2}) in values and ("halved", {"v": 3.75}) in values
    assert ("ninth", {"last": 9, "c": 3}) in values
    assert ("many", {"v": 1 - 2 + 3 + 3 + (1 << 31) + 6 - 7 + 8 + 9}) in values
    assert [held["v"] for name, held in values if name == "fib"][-1] == 5


def test_every_instruction_of_a_function(tmp_path: Path) -> None:
    """Wherever a jump has room, the program does what it did."""
    program = compiled_program(ARCH, tmp_path, "-O2")
    start = functions_of(program)["fib"]
    text = subprocess.run(
        ["riscv64-linux-gnu-objdump", "-d", "--disassemble=fib", program],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    places = [int(line.split(":")[0], 16) for line in text.splitlines() if line.startswith("   ")]
    assert places[0] == start
    probed = 0
    for at in places:
        one = f"p:one fib+{at - start}"
        done = ftpatch("probe", program, one, "-o", tmp_path / "out", "--force")
        if done.code:
            assert f"no probe at {at:#x}" in done.err
            continue
        rows = _reported(program, one)
        assert rows or at != start
        probed += 1
    assert probed > len(places) // 3


def test_no_traps(tmp_path: Path) -> None:
    program = compiled_program(ARCH, tmp_path, "-fpatchable-function-entry=0")
    done = ftpatch("probe", program, "p fib", "--no-optimize", "-o", tmp_path / "out")
    assert done.code == 2 and "traps are not supported on riscv64" in done.err
    done = ftpatch("probe", program, "p fib stack", "-o", tmp_path / "out")
    assert done.code == 2 and "stacks are not recorded" in done.err
