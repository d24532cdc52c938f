# SPDX-License-Identifier: MIT
"""Where the site of a record is, what is dropped, and what ftrace_init compares, per pad form."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from ftpatch.arch import Abi, Arch, State, architectures

ARCHES = {arch.name: arch for arch in architectures().values()}
X86, I386, ARM64, RISCV64 = (ARCHES[name] for name in ("x86_64", "i386", "arm64", "riscv64"))
IP = 0x40_1000
ENDBR64, ENDBR32 = bytes.fromhex("f30f1efa"), bytes.fromhex("f30f1efb")
NOP, MOV_X9_LR, BL = (bytes.fromhex(text) for text in ("1f2003d5", "e9031eaa", "00000094"))
BTI = {name: bytes.fromhex(f"{low}2403d5") for name, low in (("c", "5f"), ("j", "9f"))}
BTI |= {"jc": bytes.fromhex("df2403d5"), "": bytes.fromhex("1f2403d5")}
PACIASP = bytes.fromhex("3f2303d5")


def _rows(*codes: bytes, width: int = 32) -> NDArray[np.uint8]:
    return np.array([list(code.ljust(width, b"\xc3")[:width]) for code in codes], np.uint8)


def _ips(count: int) -> NDArray[np.uint64]:
    return np.full(count, IP, np.uint64)


def _adjusted(arch: Arch, abi: Abi, *codes: bytes) -> list[int]:
    ip = arch.call_adjust(_ips(len(codes)), _rows(*codes), abi)
    return [int(at) - IP for at in ip]


@pytest.mark.parametrize("arch", [X86, I386], ids=lambda arch: arch.name)
def test_x86_sites_come_behind_endbr(arch: Arch) -> None:
    pad = b"\x90" * 5
    codes = (pad, ENDBR64 + pad, ENDBR32 + pad, b"\xf3\x0f\x1e\xf9" + pad, b"\xe8" + bytes(4))
    for abi in (Abi(pad=True), Abi()):
        assert _adjusted(arch, abi, *codes) == [0, 4, 4, 0, 0]
    assert arch.lead(Abi(pad=True)) == arch.lead(Abi()) == 0


def test_arm64_sites_are_the_second_of_the_pair() -> None:
    pad = Abi(pad=True)
    codes = (NOP * 2, *(bti + NOP * 2 for bti in BTI.values()), PACIASP + NOP * 2)
    assert _adjusted(ARM64, pad, *codes) == [4, 8, 8, 8, 8, 4]
    assert ARM64.lead(pad) == 4


def test_arm64_with_pg_has_one_instruction() -> None:
    assert _adjusted(ARM64, Abi(), BL, NOP) == [0, 0]
    assert ARM64.lead(Abi()) == 0


@pytest.mark.parametrize("name", ARCHES)
def test_prefix_counts_whole_nops(name: str) -> None:
    arch = ARCHES[name]
    if name == "arm64":
        words = (NOP * 2 + PACIASP, PACIASP + NOP, NOP * 8, NOP[:3] + b"\0" + NOP)
        assert arch.prefix(_rows(*words)).tolist() == [8, 0, 32, 0]
        return
    if name == "riscv64":
        two, four, ret = bytes.fromhex("0100"), bytes.fromhex("13000000"), bytes.fromhex("8280")
        pads = (two * 4 + ret, four * 2 + ret, two + four + ret, ret + two, two * 16, four[:2])
        assert arch.prefix(_rows(*pads)).tolist() == [8, 8, 6, 0, 32, 0]
        assert arch.prefix(_rows(four * 2, width=6)).tolist() == [4], "half of one is none"
        return
    if name == "s390x":
        two, four, six = (bytes.fromhex(t) for t in ("0700", "47000000", "c00400000000"))
        pads = (two * 3, six, four + two, two * 16, b"\x07\x07" + six, four[:2])
        assert arch.prefix(_rows(*pads)).tolist() == [6, 6, 6, 32, 0, 0]
        assert arch.prefix(_rows(two + six, width=6)).tolist() == [2], "half of one is none"
        return
    if name == "ppc64le":
        nop, mflr = bytes.fromhex("00000060"), bytes.fromhex("a602087c")
        some = (nop * 2 + mflr, mflr + nop, nop * 8, nop[::-1] * 2)
        assert arch.prefix(_rows(*some)).tolist() == [8, 0, 32, 0]
        return
    if name in ("arm", "loongarch64"):  # nop; andi $zero, $zero, 0
        filler, other = {"arm": ("00f020e3", "04e02de5"), "loongarch64": ("00004003", "2c001500")}[
            name
        ]
        one, two = bytes.fromhex(filler), bytes.fromhex(other)
        assert arch.prefix(_rows(one * 2 + two, two + one, one * 8)).tolist() == [8, 0, 32]
        return
    nopl = bytes.fromhex("0f1f440008")
    codes = (b"\x90" * 5 + b"\x55", b"\x55\x90", b"\x90" * 32, nopl, b"\x90\x90" + nopl)
    assert arch.prefix(_rows(*codes)).tolist() == [5, 0, 32, 5, 2]


@pytest.mark.parametrize("name", ARCHES)
def test_landing_pads(name: str) -> None:
    arch = ARCHES[name]
    codes, wanted = [ENDBR64, ENDBR32, NOP], [True, True, False]
    if name == "arm64":
        codes, wanted = [*BTI.values(), PACIASP, NOP], [True] * 4 + [False] * 2
    if name == "riscv64":  # lpad 0; lpad 1; auipc t0, 0; nop
        codes = [bytes.fromhex(t) for t in ("17000000", "17100000", "97020000", "13000000")]
        wanted = [True, True, False, False]
    if name == "ppc64le":  # addis; addi, lis; addi, ld; add: global entries; then others
        pairs = ("0100 4c3c 0200 4238", "0100 403c 0200 4238", "0800 4ce8 1462 427c")
        codes = [bytes.fromhex(t) for t in (*pairs, "0100 4c3c 0200 6238", "0000 0060 0200 4238")]
        wanted = [True] * 3 + [False] * 2
    if name in ("arm", "loongarch64", "s390x"):
        wanted = [False] * 3
    assert arch.landing(_rows(*codes)).tolist() == wanted
    assert arch.landing_size == {"ppc64le": 8, "s390x": 2, "arm": 2}.get(name, 4)


def _states(arch: Arch, abi: Abi, *codes: bytes) -> list[tuple[int, int]]:
    code = _rows(*codes, width=arch.width)
    state, _, width, _ = arch.decode(code, _ips(len(codes)), abi)
    return list(zip(state.tolist(), width.tolist(), strict=True))


@pytest.mark.parametrize("arch", [X86, I386], ids=lambda arch: arch.name)
def test_x86_states(arch: Arch) -> None:
    call, nop, unexpected = (State.CALL, 5), (State.NOP, 5), (State.UNEXPECTED, 5)
    texts = ["9090909090", "0f1f440008", "0f1f440000", "6666666690", "eb03909090"]
    assert _states(arch, Abi(pad=True), *map(bytes.fromhex, texts)) == [nop] * 5
    others = ["9090909055", "0f1f440009", "eb02909090", "cccccccccc", "e910000000", "0f0b000000"]
    assert _states(arch, Abi(), *map(bytes.fromhex, others)) == [unexpected] * 6
    longer = ["660f1f440000", "666666666690", "eb0490909090", "67e800000000"]
    assert _states(arch, Abi(), *map(bytes.fromhex, longer)) == [(State.NOP, 6)] * 3 + [
        (State.CALL, 6)
    ]
    assert _states(arch, Abi(), b"\xe8\0\0\0\0") == [call]


def test_each_word_size_has_forms_of_its_own() -> None:
    got, addr32, lea = (bytes.fromhex(t) for t in ("ff1500100000", "670f1f0400", "3e8d742600"))
    assert _states(X86, Abi(), got, addr32, lea) == [
        (State.CALL, 6),
        (State.NOP, 5),
        (State.UNEXPECTED, 5),
    ]
    assert [state for state, _ in _states(I386, Abi(), got, addr32, lea)] == [
        State.UNEXPECTED,
        State.UNEXPECTED,
        State.NOP,
    ]
    state, addr, width, slot = X86.decode(_rows(got, width=X86.width), _ips(1), Abi())
    assert (state[0], addr[0], width[0], slot[0]) == (State.CALL, IP + 6 + 0x1000, 6, True)


def test_arm64_states() -> None:
    pairs = [NOP * 2, MOV_X9_LR + NOP, MOV_X9_LR + BL, NOP + BL, MOV_X9_LR * 2, PACIASP + NOP]
    wanted = [State.NOP, State.NOP, State.CALL, *[State.UNEXPECTED] * 3]
    assert _states(ARM64, Abi(pad=True), *pairs) == [(state, 8) for state in wanted]
    assert _states(ARM64, Abi(), BL, NOP, PACIASP) == [
        (State.CALL, 4),
        (State.NOP, 4),
        (State.UNEXPECTED, 4),
    ]


def test_what_each_kernel_skips() -> None:
    minus_4 = (1 << 64) - 4
    for arch in (X86, I386):
        for abi in (Abi(pad=True), Abi(), Abi(null_seen=True)):
            assert arch.drop(abi) == 0
    assert ARM64.drop(Abi(pad=True, null_seen=True)) == 0
    assert ARM64.drop(Abi(pad=True)) == minus_4
    # Where null is tested after call_adjust, what is written must be what that makes null.
    code = _rows(bytes(32))
    assert ARM64.call_adjust(np.array([minus_4], np.uint64), code, Abi(pad=True))[0] == 0
    assert ARM64.drop(Abi()) == 0, "call_adjust of the -pg form is the identity"
    # With CALL_OPS call_adjust reads the code at the record: -4 would be a fault at boot.
    assert ARM64.drop(Abi(pad=True, nop_ops=IP)) is None
    assert ARM64.drop(Abi(pad=True, nop_ops=IP, null_seen=True)) == 0
    for arch in ARCHES.values():
        for abi in (Abi(pad=True), Abi(), Abi(pad=True, null_seen=True)):
            assert arch.drop(abi) in arch.skips


def test_x86_init_expects_the_compiled_in_call() -> None:
    mcount = IP - 0x100
    start, code = X86.init_expects(np.array([IP, IP + 0x40], np.uint64), Abi(mcount=mcount))
    assert start == 0
    assert [row.tobytes().hex() for row in code] == ["e8fbfeffff", "e8bbfeffff"]


def test_arm64_init_expects_the_first_nop() -> None:
    start, code = ARM64.init_expects(_ips(2), Abi(pad=True))
    assert start == -4 and [row.tobytes() for row in code] == [NOP, NOP]
    start, code = ARM64.init_expects(_ips(1), Abi(mcount=IP + 0x1000))
    assert start == 0 and code[0].tobytes() == bytes.fromhex("00040094")


def test_what_init_leaves_behind() -> None:
    assert ARM64.after_init(_ips(1), Abi(pad=True))[0].tobytes() == MOV_X9_LR
    assert ARM64.after_init(_ips(1), Abi())[0].tobytes() == NOP
    own = bytes.fromhex("6666666690")
    assert X86.after_init(_ips(1), Abi())[0].tobytes().hex() == "0f1f440000"
    assert X86.after_init(_ips(1), Abi(nop=own))[0].tobytes() == own


def test_a_literal_is_8_aligned_before_the_branch() -> None:
    """With a BTI the branch is 16 bytes behind the literal's start, else 12."""
    ips = np.array([0x1010 + 4, 0x1010 + 8], np.uint64)
    assert ARM64.literal(ips).tolist() == [0x1008, 0x1008]


def test_compiled_is_the_compiler_s_form() -> None:
    forms = [bytes.fromhex(t) for t in ("9090909090", "0f1f440008", "0f1f440000", "670f1f0400")]
    found = X86.compiled(
        _ips(5),
        _rows(*forms, b"\xcc" * 5, width=6),
        np.full(5, 5, np.uint8),
        Abi(pad=True),
    )
    # What stands there is only believed if it is one of the forms that compilers leave.
    assert [row[:5].tobytes() for row in found] == [*forms, forms[0]]
    got = X86.compiled(
        _ips(1),
        _rows(bytes(6), width=6),
        np.array([6], np.uint8),
        Abi(mcount_got=IP + 6 + 0x2000, mcount=IP),
    )
    assert got[0][:6].tobytes().hex() == "ff1500200000"
    pair = ARM64.compiled(
        _ips(3),
        _rows(NOP * 2, MOV_X9_LR + NOP, PACIASP * 2, width=8),
        np.full(3, 8, np.uint8),
        Abi(pad=True),
    )
    assert [row.tobytes() for row in pair] == [NOP * 2, MOV_X9_LR + NOP, NOP * 2]
