# SPDX-License-Identifier: MIT
"""riscv64: pairs of auipc and jalr as GNU ld links them and Capstone reads them, NOPs, PLT entries;
programs are in test_pads and test_run."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ftpatch.arch import Abi, State, architectures
from ftpatch.arch.assemble import instruction
from ftpatch.arch.disassemble import disassemble
from tests.support.command import ftpatch
from tests.support.compiled import MAIN, TARGETS
from tests.support.gnu import link_at
from tests.support.readers import disassembled
from tests.support.samples import FOLDER

ARCH = {arch.name: arch for arch in architectures().values()}["riscv64"]
PAD, PG = Abi(pad=True), Abi(mcount=0x1000)
OPS = Abi(pad=True, prefix=8, nop_ops=0x1000, kernel=True)
IP = 0xFFFF_FFFF_8000_1000
TOP, REACH = 1 << 64, 1 << 31
NOP, C_NOP = bytes.fromhex("13000000"), bytes.fromhex("0100")
IDLE = bytes.fromhex("97120000") + NOP  # auipc t0, 1; nop


def _u64(*values: int) -> NDArray[np.uint64]:
    return np.array([value % TOP for value in values], np.uint64)


def _rows(*codes: bytes, width: int = 8) -> NDArray[np.uint8]:
    return np.array([list(code.ljust(width, b"\0")[:width]) for code in codes], np.uint8)


def _call(ip: int, addr: int, abi: Abi = PAD) -> bytes:
    code = ARCH.make_call(_u64(ip), _u64(addr), np.array([8], np.uint8), abi)
    return bytes(code[0].tobytes())


TEXTS = (
    *(
        "add t2, t1, t2",
        "sub t3, ra, t1",
        "subw t4, t3, t4",
        "addi t1, t1, -2048",
        "addi a6, zero, 2",
    ),
    *("andi a0, t3, 0x7f", "ori t5, t2, -128", "slli zero, zero, 0x1f", "srli t4, sp, 4"),
    *(
        "srai zero, zero, 7",
        "slli t4, t4, 63",
        "mv a1, sp",
        "nop",
        "lui a7, 0x44424",
        "auipc t1, 0",
    ),
    *("lui t2, 0xfffff", "lw t4, 12(t2)", "ld a7, 2047(sp)", "sb t5, -1(sp)", "sw zero, 0(t2)"),
    *("sd a1, 40(sp)", "amoadd.w t3, t4, (t3)", "amoswap.w.aq t5, t4, (t2)", "fence rw, w"),
    *("or a0, a0, t3", "addiw t3, t3, -2048", "lr.d t3, (t4)", "sc.d t6, t2, (t4)"),
    *(
        "jalr ra, -4(ra)",
        "ret",
        "jr t0",
        "csrrci t6, sstatus, 2",
        "csrs sstatus, t6",
        "rdtime t2",
        "ecall",
        "ebreak",
    ),
)
BRANCHES = (
    *("bnez t3,", "beqz a0,", "blez t3,", "bltz t6,", "bgeu t4, t5,", "bltu t3, t4,"),
    *("bne t3, t2,", "beq t3, t2,", "blt a2, t3,", "j", "jal t0,"),
)


@pytest.mark.parametrize("distance", [-4096, -20, 8, 2048, 4094])
def test_the_assembler_agrees_with_gnu_as(distance: int) -> None:
    texts = [*TEXTS, *(f"{branch} {IP + distance:#x}" for branch in BRANCHES)]
    made = b"".join(instruction("riscv64", text, IP) for text in texts)
    lines = [*TEXTS, *(f"{branch} .+{distance}" for branch in BRANCHES)]
    source = "\n".join([".option norvc", ".option norelax", *lines])
    assert [made] == link_at("riscv64", [(IP, source, 0)])


@pytest.mark.parametrize(
    "text",
    [
        *("addi t0, t0, 2048", "addi t0, t0, -2049", "slli t0, t0, 64", "lui t0, 0x100000"),
        *(
            "lw t0, 2048(t0)",
            "sd t0, (x)",
            "beqz t0, 0x10001",
            "beqz t0, 0x20000",
            "mul a0, a0, a1",
        ),
        *(
            "add t0, t0",
            "addi t7, t0, 1",
            "amoadd.w t0, t0, 8(t0)",
            "csrs mstatus, t0",
            "fence x, w",
        ),
    ],
)
def test_what_cannot_be_assembled_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        instruction("riscv64", text, 0x1_0000)


def _pairs() -> list[tuple[int, int]]:
    """ips and addrs: both sides of every rounding, and of what a pair reaches."""
    rng = random.Random(0x800)
    near = [0, 2, 8, 0x7FE, 0x800, 0x802, 0xFFE, 0x1000, 0x17FE, 0x1800, REACH - 0x1000]
    edges = [-REACH - 0x800, REACH - 0x806, *near, *(-distance for distance in near)]
    distances = edges + [rng.randrange(-REACH, REACH - 0x1000) & ~1 for _ in range(400)]
    bases = (0x1_0000, 0x2A_AAAA_A000, IP, TOP - 0x1000)
    return [(base, base + distance) for distance in distances for base in bases]


@pytest.mark.parametrize("abi", [PAD, OPS, PG], ids=["pad", "ops", "pg"])
def test_capstone_reads_the_same_target(abi: Abi) -> None:
    link = "ra" if abi == PG else "t0"
    for ip, addr in _pairs():
        code, at = _call(ip, addr, abi), ip - ARCH.lead(abi)
        auipc, jalr = disassembled("riscv64", code, at)
        assert (auipc.mnemonic, jalr.mnemonic) == ("auipc", "jalr")
        (first, high), operands = auipc.operands, list(jalr.operands)
        registers = [first, *operands[:2]]
        low = operands[2].imm if len(operands) == 3 else 0  # jalr ra is jalr ra, ra, 0
        assert {auipc.reg_name(op.reg) for op in registers} == {link}
        # 20 bits, of which Capstone does not extend the sign; 12, of which it does.
        upper = (high.imm << 12 ^ 1 << 31) - (1 << 31)
        assert (at + upper + low - addr) % TOP == 0
        assert -0x800 <= low < 0x800


def test_it_reads_as_one_call() -> None:
    for ip, addr in _pairs()[:200]:
        (insn,) = disassemble("riscv64", _call(ip % TOP, addr), ip % TOP)
        assert (insn.mnemonic, insn.size, insn.target) == ("call t0,", 8, addr % TOP)
    for addr in (IP - 8, IP, IP + 0x1000):
        (insn,) = disassemble("riscv64", _call(IP, addr, PG), IP)
        assert (insn.mnemonic, insn.target) == ("call", addr)
    for jalr in ("e7800200", "e7800000", "e7820000"):  # jalr ra, t0; jalr ra; jalr t0, zero
        read = disassemble("riscv64", bytes.fromhex("97020000" + jalr), IP)
        assert [insn.mnemonic for insn in read] == ["auipc", "jalr"]
    auipc, nop = disassemble("riscv64", IDLE, IP)
    assert (auipc.mnemonic, auipc.target, nop.mnemonic) == ("auipc", None, "nop")
    jal, branch, ret = disassemble("riscv64", bytes.fromhex("ef004000 6304b500 8280"), IP)
    assert (jal.target, branch.target, ret.target) == (IP + 4, IP + 4 + 8, None)


@given(st.integers(0, TOP - 1), st.integers(-REACH - 0x800, REACH - 0x806))
def test_decode_is_the_inverse(at: int, distance: int) -> None:
    ip, addr = at & ~1, (at & ~1) + (distance & ~1)
    assert ARCH.reachable(_u64(ip), _u64(addr))[0]
    for abi in (PAD, OPS, PG):
        row = _rows(_call(ip, addr, abi))
        state, found, width, got = ARCH.decode(row, _u64(ip), abi)
        assert (state[0], found[0], width[0], got[0]) == (State.CALL, addr % TOP, 8, False)


def _states(abi: Abi, *codes: bytes) -> list[State]:
    state, addr, width, _ = ARCH.decode(_rows(*codes), _u64(*[IP] * len(codes)), abi)
    assert (width == 8).all() and not addr[state != State.CALL].any()
    return [State(value) for value in state]


def test_states() -> None:
    nops = [C_NOP * 4, NOP * 2, IDLE]
    assert _states(PAD, *nops) == _states(OPS, *nops) == [State.NOP] * 3
    t0, ra = _call(IP, IP + 0x1234), _call(IP, IP + 0x1234, PG)
    assert _states(PAD, t0, ra) == _states(OPS, t0, ra) == [State.CALL, State.UNEXPECTED]
    assert _states(PG, t0, ra) == [State.UNEXPECTED, State.CALL]
    others = [
        C_NOP * 3 + bytes.fromhex("8280"),  # a pad of six bytes; ret
        NOP + bytes.fromhex("67800000"),  # one of four; ret
        C_NOP * 2 + NOP,  # no compiler mixes them
        t0[:4] + ra[4:],  # auipc t0; jalr ra, ra
        t0[:4] + bytes.fromhex("e7800200"),  # auipc t0; jalr ra, t0
        t0[:4] + bytes.fromhex("e7820200")[::-1],
        bytes.fromhex("97100000") + NOP,  # auipc ra; nop
        bytes(8),
    ]
    assert _states(PAD, *others) == [State.UNEXPECTED] * len(others)


def test_where_a_site_is() -> None:
    """Records of kernels are adjusted as ftrace_call_adjust does; programs may have an lpad."""
    code = _rows(C_NOP * 8, bytes.fromhex("17000000") + C_NOP * 8, width=32)
    assert (ARCH.call_adjust(_u64(IP, IP), code, PAD) - np.uint64(IP)).tolist() == [0, 4]
    kernel = Abi(pad=True, kernel=True)
    assert (ARCH.call_adjust(_u64(IP, IP), code, kernel) - np.uint64(IP)).tolist() == [0, 0]
    # MCOUNT_AUIPC_SIZE, and eight bytes of literal that the prefix counts.
    assert (ARCH.call_adjust(_u64(IP, IP), code, OPS) - np.uint64(IP)).tolist() == [4, 4]
    assert (ARCH.lead(PAD), ARCH.lead(PG), ARCH.lead(OPS)) == (0, 0, 4)
    assert ARCH.literal(_u64(IP + 4)).tolist() == [IP - 8]


def test_ftrace_init_compares_nothing() -> None:
    for abi in (PAD, OPS):
        start, code = ARCH.init_expects(_u64(IP, IP), abi)
        assert start == -ARCH.lead(abi) and code.shape == (2, 0)
        assert ARCH.after_init(_u64(IP, IP), abi).shape == (2, 0)
        assert ARCH.drop(abi) == 0 and ARCH.skipped(abi) == (0,)


def test_compiled_is_what_the_compiler_left() -> None:
    """What stands there is only believed if it is one of the forms that compilers leave, or what a
    running kernel makes of them."""
    forms = [C_NOP * 4, NOP * 2, IDLE]
    codes = _rows(*forms, _call(IP, IP + 8), b"\xff" * 8)
    made = ARCH.compiled(_u64(*[IP] * 5), codes, np.full(5, 8, np.uint8), PAD)
    assert [row.tobytes() for row in made] == [*forms, C_NOP * 4, C_NOP * 4]
    made = ARCH.compiled(_u64(IP), codes[:1], np.full(1, 8, np.uint8), PG)
    assert made[0].tobytes() == _call(IP, 0x1000, PG)


@pytest.mark.parametrize("abi", [PAD, PG], ids=["pad", "pg"])
def test_unlinked_is_what_gnu_as_makes(abi: Abi, tmp_path: Path) -> None:
    """R_RISCV_CALL_PLT fills both instructions."""
    register = "ra" if abi == PG else "t0"
    source, part = tmp_path / "call.s", tmp_path / "call.o"
    source.write_text(f"auipc {register}, 0\njalr {register}, 0({register})\n")
    TARGETS["riscv64"].compile("gcc", [], source)
    text = tmp_path / "text"
    command = ["riscv64-linux-gnu-objcopy", "-O", "binary", "-j", ".text", str(part), str(text)]
    subprocess.run(command, check=True)
    made = ARCH.unlinked(_rows(_call(IP, IP - 0x12346, abi), NOP * 2), abi)
    assert [row.tobytes() for row in made] == [text.read_bytes(), NOP * 2]


PLT = "0: auipc t3, %pcrel_hi(target)\nld t3, %pcrel_lo(0b)(t3)\njalr t1, t3\nnop"


def test_a_plt_entry_gives_its_slot() -> None:
    slots = [0x41_F018, 0x40_0E58, 0x40_0668, 0x3F_FFF8]
    for slot, (code,) in ((s, link_at("riscv64", [(0x40_0650, PLT, s)])) for s in slots):
        assert ARCH.veneer_target(code + bytes(48), 0x40_0650) == -slot
        lpad = bytes.fromhex("17000000")
        assert ARCH.veneer_target(lpad + code + bytes(44), 0x40_064C) == -slot
        assert ARCH.veneer_target(code[:8] + NOP * 14, 0x40_0650) == 0


def test_calls_through_the_plt_are_named(tmp_path: Path) -> None:
    """-pg as of old kernels, in a program: _mcount is libc's."""
    target = TARGETS["riscv64"]
    source, assembly = tmp_path / "main.c", tmp_path / "main.s"
    source.write_text(MAIN)
    command = [*target.command("gcc"), "-O2", "-fPIE", "-pg", "-S", str(source), "-o"]
    subprocess.run([*command, str(assembly)], check=True)
    command = ["python3", str(FOLDER / "tools/objtool.py"), "mcount", str(assembly)]
    subprocess.run(command, check=True)
    caller = tmp_path / "caller.S"
    caller.write_text(f"    .text{target.caller.replace('jr t0', 'ret')}")
    counter = tmp_path / "counter.c"
    counter.write_text("int calls;\n")
    parts = [target.compile("gcc", [], path) for path in (caller, counter, assembly)]
    flags = ["-pie", "-Wl,--no-relax", "-Wl,-z,notext"]
    program = target.link(parts, flags, tmp_path / "program")
    status = ftpatch("status", "--json", program).only
    assert status["states"] == {"nop": 0, "call": 2, "unexpected": 0}
    assert status["targets"] == {"_mcount": 2}
    original = program.read_bytes()
    assert target.run(program) == "27 0\n"
    assert ftpatch("enable", "--json", "--in-place", program).only["changed"] == 2
    assert target.run(program) == "27 3\n"
    assert ftpatch("disable", "--json", "--in-place", program).only["changed"] == 2
    assert target.run(program) == "27 0\n"
    assert ftpatch("undo", "--all", program).code == 0 and program.read_bytes() == original


def test_without_section_headers_the_table_is_found(tmp_path: Path) -> None:
    """By what it is: in a static-PIE its records are RELATIVE relocations."""
    for name in ("riscv64-pad-static", "riscv64-pad-static-pie", "riscv64-pad-noc"):
        program = tmp_path / name
        program.write_bytes((FOLDER / "built" / name).read_bytes())
        rows = ftpatch("list", "--json", program).json
        command = ["python3", str(FOLDER / "tools/strip_headers.py"), str(program)]
        subprocess.run(command, check=True)
        found = ftpatch("list", "--json", program).json
        assert {row["ip"] for row in found} == {row["ip"] for row in rows}
