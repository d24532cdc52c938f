# SPDX-License-Identifier: MIT
"""Probes in programs of architectures without traps, by gdb through qemu: the same hits, with the
same values."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.regs_gdb import registers_by_gdb
from tests.support.tracer_programs import emulator, run
from tests.support.user_stubs import compiled_program, functions_of

FUNCTIONS = {"many": 8, "both": 2, "all": 2, "half": 1, "less": 2, "fib": 1}
"""Registers of their arguments: what is in others depends on the length of the program's path."""


@dataclass(frozen=True)
class Port:
    """``arguments``: registers of integers, in order; ``others`` that are as gdb has them, the
    stack pointer last; ``float``: that of the first one, and of a result; ``forms`` of compiling;
    ``ninth``: the last argument of many()."""

    arguments: tuple[str, ...]
    others: tuple[str, ...]
    float: str
    forms: Mapping[str, tuple[str, ...]]
    ninth: str


PORTS = {
    "riscv64": Port(
        tuple(f"a{n}" for n in range(8)),
        ("ra", "sp"),
        "fa0",
        {
            "O0": ("-O0",),
            "O2": ("-O2",),
            "no-rvc": ("-O1", "-march=rv64g", "-mno-relax"),
            "saved": ("-O1", "-msave-restore"),
            "bare": ("-O1", "-fpatchable-function-entry=0"),
        },
        "+0($stack)",
    ),
    "s390x": Port(
        tuple(f"r{n}" for n in range(2, 7)),
        ("r14", "r15"),
        "f0",
        {
            "O0": ("-O0",),
            "O2": ("-O2",),
            "z15": ("-O2", "-march=z15"),
            "backchain": ("-O1", "-mbackchain"),
            "bare": ("-O1", "-fpatchable-function-entry=0"),
        },
        "+184($stack)",
    ),
}
FORMS = [(arch, form) for arch, port in PORTS.items() for form in port.forms]


def _reported(arch: str, program: Path, *probes: str) -> list[dict[str, object]]:
    out, trace = program.with_name("out"), program.with_name("trace")
    done = ftpatch("probe", program, *probes, "-o", out, "--force")
    assert done.code == 0, done.err
    plain = run(program, cwd=program.parent, arch=arch)
    ran = run(out, cwd=program.parent, arch=arch, env={"FTPATCH_TRACE": str(trace)})
    assert (ran.status, ran.out) == (plain.status, plain.out) and ran.status == 0, str(ran)
    return [row for row in ftpatch("report", trace, "--json").json if "time" in row]


@pytest.mark.parametrize(("arch", "form"), FORMS)
def test_registers_are_what_gdb_sees(arch: str, form: str, tmp_path: Path) -> None:
    port = PORTS[arch]
    names, stack = (*port.arguments, *port.others), port.others[-1]
    program = compiled_program(arch, tmp_path, *port.forms[form])
    places = {name: at for name, at in functions_of(program).items() if name in FUNCTIONS}
    seen, _ = registers_by_gdb(program, places, names, emulator(arch))
    fetched = " ".join(f"{name}=%{name}" for name in names)
    rows = _reported(arch, program, *(f"p:{name} {name} {fetched}" for name in FUNCTIONS))
    entries = [(name, held) for kind, name, held in seen if kind == 0]
    assert len(rows) == len(entries) > 15
    for row, (name, held) in zip(rows, entries, strict=True):
        assert row["probe"] == name
        values = {key: int(str(value), 0) for key, value in dict(row["values"]).items()}  # type: ignore[call-overload]
        apart = values[stack] - held[stack]  # of the environment
        for one in (*port.arguments[: FUNCTIONS[name]], *port.others):
            assert values[one] - held[one] in (0, apart), (name, one)


@pytest.mark.parametrize("arch", PORTS)
def test_results_and_floats(arch: str, tmp_path: Path) -> None:
    program = compiled_program(arch, tmp_path, "-O1")
    rows = _reported(
        arch,
        program,
        f"p:half half of=%{PORTS[arch].float}:f64 n=$arg1:s32",
        f"r:halved half v=%{PORTS[arch].float}:f64",
        "r:fib fib v=$retval:s32",
        "r:many many v=$retval:s64",
        f"p:ninth many last={PORTS[arch].ninth}:s64 c=+0($arg4):s8",
    )
    values = [(row["probe"], dict(row["values"])) for row in rows]  # type: ignore[call-overload]
    assert ("half", {"of": 3.5, "n": 2}) in values and ("halved", {"v": 3.75}) in values
    assert ("ninth", {"last": 9, "c": 3}) in values
    assert ("many", {"v": 1 - 2 + 3 + 3 + (1 << 31) + 6 - 7 + 8 + 9}) in values
    assert [held["v"] for name, held in values if name == "fib"][-1] == 5


@pytest.mark.parametrize("arch", PORTS)
def test_every_instruction_of_a_function(arch: str, tmp_path: Path) -> None:
    """Wherever a jump has room, the program does what it did."""
    program = compiled_program(arch, tmp_path, "-O2")
    start = functions_of(program)["fib"]
    text = subprocess.run(
        [f"{arch}-linux-gnu-objdump", "-d", "--disassemble=fib", program],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    places = [int(at, 16) for at in re.findall(r"^ +([0-9a-f]+):\t", text, re.MULTILINE)]
    assert places[0] == start
    probed = 0
    for at in places:
        one = f"p:one fib+{at - start}"
        done = ftpatch("probe", program, one, "-o", tmp_path / "out", "--force")
        if done.code:
            assert f"no probe at {at:#x}" in done.err
            continue
        rows = _reported(arch, program, one)
        assert rows or at != start
        probed += 1
    assert probed > len(places) // 3


@pytest.mark.parametrize("arch", PORTS)
def test_no_traps(arch: str, tmp_path: Path) -> None:
    program = compiled_program(arch, tmp_path, "-fpatchable-function-entry=0")
    done = ftpatch("probe", program, "p fib", "--no-optimize", "-o", tmp_path / "out")
    assert done.code == 2 and f"traps are not supported on {arch}" in done.err
