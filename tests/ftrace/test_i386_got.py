# SPDX-License-Identifier: MIT
"""i386 programs whose sites call mcount through the GOT: ff 93 disp32, from ebx."""

from __future__ import annotations

import platform
import random
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ftpatch.arch import Abi, State, architectures
from tests.support.command import ftpatch
from tests.support.compiled import END, MAIN, TARGETS
from tests.support.gnu import link_at
from tests.support.samples import sample

I386 = TARGETS["i386"]
ARCH = {arch.name: arch for arch in architectures().values()}["i386"]
TOP = 1 << 32
MCOUNT = ["-pg", "-mno-fentry", "-mrecord-mcount", "-fPIE"]
# The table is in a read-only section: the loader relocates text.
PIE = ["-pie", "-Wl,-z,notext"]
NOPS = {"p6": "660f1f440000", "nop5": "666666666690", "jmp": "eb0490909090"}

executed = pytest.mark.skipif(platform.machine() != "x86_64", reason="runs i386 programs")


def _code(program: Path, row: dict[str, object]) -> str:
    offset = int(str(row["offset"]))
    return program.read_bytes()[offset : offset + 6].hex()


@executed
@pytest.mark.parametrize("bind", ["lazy", "now"])
@pytest.mark.parametrize("stripped", [False, True], ids=["", "stripped"])
def test_a_pie_is_enabled_disabled_and_undone(tmp_path: Path, stripped: bool, bind: str) -> None:
    """mcount is libc's, so the linker leaves the calls through the GOT."""
    program = I386.build(tmp_path, ("gcc", MCOUNT), flags=[*PIE, f"-Wl,-z,{bind}"])
    (caller,) = ftpatch("list", "--json", program).json[:1]
    assert caller["target"] == "mcount"
    symbols = subprocess.check_output(["nm", str(program)], text=True).splitlines()
    (address,) = (line.split()[0] for line in symbols if line.endswith(" ftrace_caller"))
    if stripped:  # _GLOBAL_OFFSET_TABLE_ is gone, DT_PLTGOT is not
        subprocess.run(["strip", str(program)], check=True)
    original = program.read_bytes()
    rows = ftpatch("list", "--json", program).json
    assert [(row["state"], row["target"]) for row in rows] == [("call", "mcount")] * 2
    assert all(_code(program, row).startswith("ff93") for row in rows)
    assert I386.run(program) == "27 0\n"
    done = ftpatch("enable", "--json", "--in-place", program, "--to", f"0x{address}")
    assert (done.code, done.only["changed"]) == (0, 2), done.err
    assert all(_code(program, row).startswith("67e8") for row in rows)
    assert I386.run(program) == "27 3\n"
    assert ftpatch("check", program).code == 0
    done = ftpatch("disable", "--json", "--in-place", program)
    assert (done.code, done.only["changed"]) == (0, 2), done.err
    assert {_code(program, row) for row in rows} == {NOPS["p6"]}
    assert I386.run(program) == "27 0\n"
    assert ftpatch("undo", "--all", program).code == 0
    assert program.read_bytes() == original


@executed
@pytest.mark.parametrize("nop", NOPS)
def test_every_nop_of_six_bytes_runs(tmp_path: Path, nop: str) -> None:
    program = I386.build(tmp_path, ("gcc", MCOUNT), flags=PIE)
    rows = ftpatch("list", "--json", program).json
    assert ftpatch("disable", "--in-place", program, "--nop", nop).code == 0
    assert {_code(program, row) for row in rows} == {NOPS[nop]}
    assert I386.run(program) == "27 0\n"
    assert ftpatch("check", program).code == 0


COUNT = """
extern int calls __attribute__((visibility("hidden")));
int count(void) { return calls; }
"""
USER = """
int printf(const char *, ...);
int two(int), count(void);
int main(void) { int r = two(4); printf("%d %d\\n", r, count()); return 0; }
"""


@executed
def test_a_library_is_enabled(tmp_path: Path) -> None:
    """Its sites call the library's own ftrace_caller."""
    work, _, _ = MAIN.partition("__attribute__((patchable")
    caller = f"    .text\n    .hidden calls{I386.caller}{END}"
    parts = []
    for name, text, flags in (
        ("work.c", work, [*MCOUNT, "-fPIC"]),
        ("count.c", COUNT, ["-fPIC"]),
        ("caller.S", caller, []),
    ):
        (tmp_path / name).write_text(text)
        parts.append(I386.compile("gcc", flags, tmp_path / name))
    library = I386.link(parts, ["-shared", "-Wl,-z,notext"], tmp_path / "libwork.so")
    user = tmp_path / "main.c"
    user.write_text(USER)
    program = I386.link([user, library], [f"-Wl,-rpath,{tmp_path}"], tmp_path / "program")
    assert I386.run(program) == "27 0\n"
    assert ftpatch("enable", "--json", "--in-place", library).only["changed"] == 2
    assert I386.run(program) == "27 3\n"


def test_without_a_base_the_slot_is_unknown(tmp_path: Path) -> None:
    """Neither DT_PLTGOT (there is no PLT) nor a symbol: nothing is written."""
    program = tmp_path / "program"
    program.write_bytes(sample("i386-mcount-pie-got").data)
    assert ftpatch("status", "--json", program).only["states"]["call"] == 17
    subprocess.run(["strip", str(program)], check=True)
    before = program.read_bytes()
    status = ftpatch("status", "--json", program).only
    assert status["states"] == {"nop": 0, "call": 0, "unexpected": 17}
    assert ftpatch("disable", "--in-place", program).code == 1
    assert program.read_bytes() == before


def test_gnu_as_agrees() -> None:
    rng = random.Random(93)
    slots = [rng.randrange(TOP) // 4 * 4 for _ in range(60)]
    bases = [rng.choice([slot + 4, slot - 0x20, rng.randrange(TOP)]) % TOP for slot in slots]
    ips = [0x804_9000 + 64 * i for i in range(60)]
    pieces = [
        (ip, "call *target(%ebx)", (slot - base) % TOP)
        for ip, slot, base in zip(ips, slots, bases, strict=True)
    ]
    linked = link_at("i386", pieces)
    for ip, slot, base, code in zip(ips, slots, bases, linked, strict=True):
        abi = Abi(mcount=ip, mcount_got=slot, got_base=base)
        at, six = np.array([ip], np.uint64), np.array([6], np.uint8)
        row = np.frombuffer(code.ljust(ARCH.width, b"\0"), np.uint8).reshape(1, -1)
        if base:
            assert ARCH.compiled(at, row, six, abi)[0, :6].tobytes() == code
            state, addr, width, got = ARCH.decode(row, at, abi)
            assert (state[0], addr[0], width[0], got[0]) == (State.CALL, slot, 6, True)
        assert ARCH.decode(row, at, Abi())[0][0] == State.UNEXPECTED
