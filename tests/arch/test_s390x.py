# SPDX-License-Identifier: MIT
"""s390x: branches as GNU as and ld make them and Capstone reads them, NOPs, PLT entries, the
trampolines of a running kernel, and programs of every form that gcc makes, run by QEMU."""

from __future__ import annotations

import random
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ftpatch.arch import Abi, State, architectures
from ftpatch.arch.disassemble import disassemble
from tests.support.command import ftpatch
from tests.support.compiled import TARGETS
from tests.support.gnu import link_at
from tests.support.readers import disassembled

ARCH = {arch.name: arch for arch in architectures().values()}["s390x"]
PAD, PROGRAM, FENTRY = Abi(pad=True, kernel=True), Abi(pad=True), Abi(mcount=0x1000)
KERNEL = Abi(pad=True, kernel=True, trampolines=0xC1_6088)
IP, TOP, REACH = 0x10_0000, 1 << 64, 1 << 32
NOP, NOPR = bytes.fromhex("c00400000000"), bytes.fromhex("070007000700")
SIX = np.array([6], np.uint8)


def _u64(*values: int) -> NDArray[np.uint64]:
    return np.array([value % TOP for value in values], np.uint64)


def _rows(*codes: bytes, width: int = 6) -> NDArray[np.uint8]:
    return np.array([list(code.ljust(width, b"\0")[:width]) for code in codes], np.uint8)


def _call(ip: int, addr: int) -> bytes:
    return bytes(ARCH.make_call(_u64(ip), _u64(addr), SIX, PAD)[0].tobytes())


def _pairs() -> list[tuple[int, int]]:
    """ips and addrs: near, and both ends of what a branch reaches."""
    rng = random.Random(0x390)
    edges = [0, 2, 6, -2, -6, 0xFFFE, 0x1_0000, -0x1_0000, REACH - 2, -REACH]
    distances = edges + [rng.randrange(-REACH, REACH) & ~1 for _ in range(400)]
    bases = (0x100_1000, 0x2AA_0000_0000, 0x3FF_E010_0000, TOP - 0x1_0000_1000)
    return [(base, base + distance) for distance in distances for base in bases]


def test_capstone_reads_the_same_target() -> None:
    for ip, addr in _pairs():
        (insn,) = disassembled("s390x", _call(ip, addr), ip)
        register, target = insn.operands
        assert (insn.mnemonic, insn.reg_name(register.reg)) == ("brasl", "0")
        assert target.imm % TOP == addr % TOP
        (insn,) = disassemble("s390x", _call(ip, addr), ip % TOP)
        assert (insn.mnemonic, insn.size, insn.target) == ("brasl %r0,", 6, addr % TOP)
    (nop,) = disassemble("s390x", NOP, IP)
    assert (nop.mnemonic, nop.operands, nop.target) == ("brcl", f"0, {IP:#x}", None)


def test_gnu_as_makes_the_same_bytes() -> None:
    rng = random.Random(6)
    ips = [0x100_0000 + 0x40 * n for n in range(160)]
    addrs = [ip + (rng.randrange(-0x80_0000, 0x7000_0000) & ~1) for ip in ips]
    made = ARCH.make_call(_u64(*ips), _u64(*addrs), np.repeat(SIX, len(ips)), PAD)
    linked = link_at(
        "s390x", [(ip, "brasl %r0, target", to) for ip, to in zip(ips, addrs, strict=True)]
    )
    assert [row.tobytes() for row in made] == linked
    assert link_at("s390x", [(IP, "brcl 0, .", 0), (IP + 64, "nopr; nopr; nopr", 0)]) == [NOP, NOPR]
    assert ARCH.make_nop(SIX, b"", PAD)[0].tobytes() == NOP


@given(st.integers(0, TOP - 1), st.integers(-REACH, REACH - 2))
def test_decode_is_the_inverse(at: int, distance: int) -> None:
    ip, addr = at & ~1, (at & ~1) + (distance & ~1)
    assert ARCH.reachable(_u64(ip), _u64(addr))[0]
    state, found, width, got = ARCH.decode(_rows(_call(ip, addr)), _u64(ip), PAD)
    assert (state[0], found[0], width[0], got[0]) == (State.CALL, addr % TOP, 6, False)


def test_what_it_reaches() -> None:
    out = [REACH, -REACH - 2, 1, 3, -1]
    assert not ARCH.reachable(_u64(*[IP] * 5), _u64(*[IP + d for d in out])).any()
    assert ARCH.reachable(_u64(IP, IP), _u64(IP + REACH - 2, IP - REACH)).all()


def test_states() -> None:
    nops = [NOP, NOPR, bytes.fromhex("c00400001234")]
    calls = [_call(IP, IP + 0x1234), bytes.fromhex("c0f40000091a")]  # jg
    others = ["c0e500001234", "c01500001234", "e3e0f0080024", "070007000707", "000000000000"]
    codes = _rows(*nops, *calls, *map(bytes.fromhex, others))
    state, addr, width, _ = ARCH.decode(codes, _u64(*[IP] * len(codes)), PAD)
    assert state.tolist() == [State.NOP] * 3 + [State.CALL] * 2 + [State.UNEXPECTED] * 5
    assert addr.tolist() == [0] * 3 + [IP + 0x1234] * 2 + [0] * 5 and (width == 6).all()


def test_programs_keep_the_static_chain() -> None:
    """It is in %r0; but the compiler itself calls __fentry__ with that."""
    codes = link_at("s390x", [(IP, f"brasl %r{n}, target", IP + 0x1000) for n in (1, 0)])
    addr = _u64(IP + 0x1000)
    mcount = Abi(mcount=IP + 0x1000)
    for abi, code in ((PROGRAM, codes[0]), (FENTRY, codes[0]), (mcount, codes[1])):
        assert ARCH.make_call(_u64(IP), addr, SIX, abi)[0].tobytes() == code
        for each in codes:
            state, found, _, _ = ARCH.decode(_rows(each), _u64(IP), abi)
            assert (state[0], found[0]) == (State.CALL, IP + 0x1000)
    assert ARCH.decode(_rows(codes[0]), _u64(IP), PAD)[0][0] == State.UNEXPECTED
    (insn,) = disassembled("s390x", codes[0], IP)
    assert insn.reg_name(insn.operands[0].reg) == "1"


def test_nops_at_the_start_are_counted() -> None:
    texts = ["br %r14", "nopr; br %r14", "nop; br %r14", "brcl 0, .; br %r14"]
    texts += ["nopr; nop; brcl 0, .; nopr; br %r14", "nopr %r7; br %r14"]
    codes = link_at("s390x", [(IP + 64 * n, text, 0) for n, text in enumerate(texts)])
    rows = np.array([list(code.ljust(64, b"\xff")) for code in codes], np.uint8)
    assert ARCH.prefix(rows).tolist() == [0, 2, 4, 6, 14, 0]
    assert ARCH.prefix(np.tile(_rows(b"\x07\0" * 32, width=64), (2, 1))).tolist() == [64, 64]
    cut = _rows(b"\x07\0" * 30 + NOP, width=64)
    assert ARCH.prefix(cut).tolist() == [60]


def test_ftrace_init_compares_the_compiled_form() -> None:
    start, code = ARCH.init_expects(_u64(IP, IP), KERNEL)
    assert start == 0 and [row.tobytes() for row in code] == [NOP] * 2
    assert ARCH.drop(KERNEL) == 0 and ARCH.skipped(KERNEL) == (0,)
    ips = [IP, IP, IP + 0x100]
    left = ARCH.after_init(_u64(*ips), KERNEL)
    for number, (ip, row) in enumerate(zip(ips, left, strict=True)):
        (insn,) = disassembled("s390x", row.tobytes(), ip)
        assert insn.mnemonic == "brcl"
        assert insn.operands[1].imm == KERNEL.trampolines + 24 * (number - 1)
    assert NOP not in [row.tobytes() for row in ARCH.after_init(_u64(*ips), PAD)]
    deadly = ARCH.deadly(_u64(*ips), _u64(*ips), np.array([True, False, True]), KERNEL)
    assert deadly[0].mask.tolist() == [False, True, False]
    # A module does not tell whether its kernel reads unchecked.
    (none,) = ARCH.deadly(_u64(IP), _u64(IP), np.array([False]), PAD)
    assert not none.mask.any()


def test_compiled_is_what_the_compiler_left() -> None:
    codes = _rows(NOP, NOPR, _call(IP, IP + 8), b"\xff" * 6)
    ips, widths = _u64(*[IP] * 4), np.full(4, 6, np.uint8)
    made = ARCH.compiled(ips, codes, widths, PROGRAM)
    assert [row.tobytes() for row in made] == [NOP, NOPR, NOP, NOP]
    made = ARCH.compiled(ips, codes, widths, KERNEL)  # ftrace_init takes no other
    assert [row.tobytes() for row in made] == [NOP] * 4
    assert ARCH.compiled(ips[:1], codes[:1], SIX, FENTRY)[0].tobytes() == _call(IP, 0x1000)


def test_unlinked_is_what_gnu_as_makes(tmp_path: Path) -> None:
    """R_390_PLT32DBL has the distance in its addend."""
    source, part, text = tmp_path / "call.s", tmp_path / "call.o", tmp_path / "text"
    source.write_text("brasl %r0, target@PLT\n")
    TARGETS["s390x"].compile("gcc", [], source)
    command = ["s390x-linux-gnu-objcopy", "-O", "binary", "-j", ".text", str(part), str(text)]
    subprocess.run(command, check=True)
    made = ARCH.unlinked(_rows(_call(IP, IP - 0x12346), NOP), PAD)
    assert [row.tobytes() for row in made] == [text.read_bytes()[:6], NOP]
    command = ["s390x-linux-gnu-readelf", "-rW", str(part)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert f"R_390_PLT32DBL         0000000000000000 target + {ARCH.call_addend}" in said


PLT = "larl %r1, target; lg %r1, 0(%r1); br %r1; basr %r1, %r0"


def test_a_plt_entry_gives_its_slot() -> None:
    for slot in (0x41_F018, 0x40_0E58, 0x40_0668, 0x3F_FFF8):
        (code,) = link_at("s390x", [(0x40_0650, PLT, slot)])
        assert ARCH.veneer_target(code + bytes(48), 0x40_0650) == -slot
        assert ARCH.veneer_target(code[:6] + bytes(58), 0x40_0650) == 0


def test_a_trampoline_gives_its_interceptor() -> None:
    at, shared, interceptor = 0xC1_6088, 0xC1_5E20, 0xC1_5D20
    (brasl,) = link_at("s390x", [(at, "brasl %r1, target", shared)])
    code = brasl + bytes(2) + struct.pack(">QQ", IP + 6, interceptor)
    assert ARCH.veneer_target(code + bytes(40), at) == interceptor


FORMS = {
    "pad": ["-fpatchable-function-entry=3"],
    "pad-long": ["-fpatchable-function-entry=5"],
    "pad-before": ["-fpatchable-function-entry=5,1"],
    "pad-nine": ["-fpatchable-function-entry=9,4"],
    "fentry": ["-pg", "-mfentry", "-mrecord-mcount"],
    "fentry-nop": ["-pg", "-mfentry", "-mrecord-mcount", "-mnop-mcount"],
}


@pytest.mark.parametrize("linked", ["-no-pie", "-pie", "-static"])
@pytest.mark.parametrize("form", FORMS)
def test_programs_are_enabled_run_and_undone(tmp_path: Path, form: str, linked: str) -> None:
    target = TARGETS["s390x"]
    code = "-fPIE" if linked == "-pie" else "-fno-pie"
    program = target.build(tmp_path, ("gcc", [*FORMS[form], code]), flags=[linked])
    original = program.read_bytes()
    assert target.run(program) == "27 0\n"
    status = ftpatch("status", "--json", program).only
    state = "call" if form == "fentry" else "nop"
    assert status["arch"] == "s390x" and status["states"][state] == status["sites"] == 2
    assert status["targets"] == ({"__fentry__": 2} if form == "fentry" else {})
    done = ftpatch("enable", "--json", "--in-place", program)
    assert (done.code, done.only["changed"]) == (0, 2), done.err
    assert target.run(program) == "27 3\n"
    assert ftpatch("check", program).code == 0
    again = ftpatch("enable", "--json", program, "-o", tmp_path / "again").only
    assert (again["changed"], again["unchanged"]) == (0, 2)
    done = ftpatch("disable", "--json", "--in-place", program)
    assert (done.code, done.only["changed"]) == (0, 2), done.err
    assert target.run(program) == "27 0\n"
    assert ftpatch("undo", "--all", program).code == 0 and program.read_bytes() == original
    done = ftpatch("enable", "-f", "one", "--json", "--in-place", program)
    assert done.only["changed"] == 1 and target.run(program) == "27 2\n"
    assert ftpatch("undo", program).code == 0 and program.read_bytes() == original


@pytest.mark.parametrize("form", ["pad", "fentry", "fentry-nop"])
def test_libraries_are_enabled_and_undone(tmp_path: Path, form: str) -> None:
    """Called from a program that has none of it: what the callee is, --to says."""
    target = TARGETS["s390x"]
    source = tmp_path / "library.c"
    source.write_text("int count; int work(int a) { return a * 7; }\n")
    caller = tmp_path / "caller.S"
    caller.write_text("    .text" + target.caller.replace("calls", "count"))
    library = tmp_path / "libwork.so"
    parts = [
        target.compile("gcc", ["-fPIC", *FORMS[form]], source),
        target.compile("gcc", [], caller),
    ]
    target.link(parts, ["-shared", "-Wl,-Bsymbolic"], library)
    main = tmp_path / "main.c"
    main.write_text(
        "int printf(const char *, ...); extern int count, work(int);\n"
        'int main(void) { int r = work(6); printf("%d %d\\n", r, count); return 0; }\n'
    )
    part = target.compile("gcc", ["-fPIC"], main)
    program = target.link([part, library], [f"-Wl,-rpath,{tmp_path}"], tmp_path / "program")
    assert target.run(program) == "42 0\n"
    original = library.read_bytes()
    done = ftpatch("enable", "--json", "--in-place", library)
    assert (done.code, done.only["changed"]) == (0, 1), done.err
    assert target.run(program) == "42 1\n"
    assert ftpatch("undo", library).code == 0 and library.read_bytes() == original
