# SPDX-License-Identifier: MIT
"""make_call: the vectorised encoder, Keystone, GNU as with ld, and Capstone must agree."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from ftpatch.arch import Abi, Arch, State, architectures
from tests.support.gnu import link_at
from tests.support.readers import assembled, disassembled, target_of

ARCHES = {arch.name: arch for arch in architectures().values()}
BASES = {
    "x86_64": (0x40_1000, 0x5555_5555_4000, 0x7FFF_F7DD_0000, 0xFFFF_FFFF_8100_0000),
    "i386": (0x804_9000, 0x5655_6000, 0xC100_0000, 0xF7FC_0000),
    "arm64": (0x40_0000, 0xAAAA_AAAA_0000, 0xFFFF_8000_0800_0000, 0xFFFF_8000_8000_0000),
    "riscv64": (0x1_0000, 0x2A_AAAA_A000, 0x3F_F7DD_0000, 0xFFFF_FFFF_8000_0000),
}
REACH = {"x86_64": 1 << 31, "i386": 1 << 31, "arm64": 1 << 27, "riscv64": (1 << 31) - 0x800}
FORMS = [
    pytest.param("x86_64", Abi(pad=True), 5, "call target", id="x86_64"),
    pytest.param("x86_64", Abi(), 6, ".byte 0x67\ncall target", id="x86_64-addr32"),
    pytest.param("i386", Abi(pad=True), 5, "call target", id="i386"),
    pytest.param("i386", Abi(), 6, ".byte 0x67\ncall target", id="i386-addr32"),
    pytest.param("arm64", Abi(pad=True), 8, "mov x9, x30\nbl target", id="arm64"),
    pytest.param("arm64", Abi(), 4, "bl target", id="arm64-pg"),
]
T0_PAIR = "0: auipc t0, %pcrel_hi(target)\njalr t0, %pcrel_lo(0b)(t0)"
OPS = Abi(pad=True, prefix=8, nop_ops=0x1000, kernel=True)
LINKED = [
    *FORMS,
    # Keystone has no RISC-V, and Capstone reads a pair as two (test_riscv64).
    pytest.param("riscv64", Abi(pad=True), 8, T0_PAIR, id="riscv64"),
    pytest.param("riscv64", OPS, 8, T0_PAIR, id="riscv64-ops"),
    pytest.param("riscv64", Abi(), 8, "call target", id="riscv64-pg"),
]
PAIRS = 160


def _u64(values: list[int]) -> NDArray[np.uint64]:
    return np.array(values, np.uint64)


@cache
def _pairs(name: str) -> tuple[list[int], list[int]]:
    """ips and addrs: near and far, and on both edges of what a branch reaches."""
    rng = random.Random(name)
    arch, reach = ARCHES[name], REACH[name]
    top = (1 << arch.elf_class) - 1
    ips: list[int] = []
    addrs: list[int] = []
    taken = set()
    edges = [-reach, -reach + 8, -8, 8, 16, reach - 8, reach - 4, reach - 16, reach]
    while len(ips) < PAIRS:
        # Sections of one link must not overlap.
        ip = rng.choice(BASES[name]) + rng.randrange(0, 1 << 24) // 16 * 16
        if ip in taken:
            continue
        if rng.random() < 0.4:
            addr = ip + rng.choice(edges) + rng.randrange(-8, 9)
        else:
            addr = ip + rng.randrange(-reach, reach)
        addr = (addr & top) // arch.align * arch.align
        if arch.reachable(_u64([ip]), _u64([addr]))[0]:
            taken.add(ip)
            ips.append(ip)
            addrs.append(addr)
    return ips, addrs


def _made(arch: Arch, abi: Abi, width: int) -> list[bytes]:
    ips, addrs = _pairs(arch.name)
    widths = np.full(len(ips), width, np.uint8)
    code = arch.make_call(_u64(ips), _u64(addrs), widths, abi)
    assert code.shape == (len(ips), arch.width) and code.dtype == np.uint8
    assert not code[:, width:].any(), "bytes behind the width are zero"
    return [row[:width].tobytes() for row in code]


@pytest.mark.parametrize(("name", "abi", "width", "text"), FORMS)
def test_keystone_agrees(name: str, abi: Abi, width: int, text: str) -> None:
    arch = ARCHES[name]
    for ip, addr, code in zip(*_pairs(name), _made(arch, abi, width), strict=True):
        if name == "arm64":
            pair = b"" if width == 4 else assembled(name, "mov x9, x30", ip - 4)
            assert code == pair + assembled(name, f"bl #{addr:#x}", ip)
        else:
            at = ip + width - 5  # behind the prefix
            assert code == b"\x67" * (width - 5) + assembled(name, f"call {addr:#x}", at)


@pytest.mark.parametrize(("name", "abi", "width", "text"), LINKED)
def test_gnu_as_agrees(name: str, abi: Abi, width: int, text: str) -> None:
    arch = ARCHES[name]
    ips, addrs = _pairs(name)
    lead = arch.lead(abi)
    pieces = [(ip - lead, text, addr) for ip, addr in zip(ips, addrs, strict=True)]
    assert link_at(name, pieces) == _made(arch, abi, width)


@pytest.mark.parametrize(("name", "abi", "width", "text"), FORMS)
def test_capstone_reads_the_same_target(name: str, abi: Abi, width: int, text: str) -> None:
    arch = ARCHES[name]
    for ip, addr, code in zip(*_pairs(name), _made(arch, abi, width), strict=True):
        *before, call = disassembled(name, code, ip - arch.lead(abi))
        assert target_of(call) & ((1 << arch.elf_class) - 1) == addr
        assert call.mnemonic in ("call", "bl") and call.address + call.size == ip + (
            4 if name == "arm64" else width
        )
        assert [f"{i.mnemonic} {i.op_str}" for i in before] == ["mov x9, x30"] * (width == 8)


@pytest.mark.parametrize(("name", "abi", "width", "text"), LINKED)
def test_decode_is_the_inverse(name: str, abi: Abi, width: int, text: str) -> None:
    arch = ARCHES[name]
    ips, addrs = (_u64(values) for values in _pairs(name))
    widths = np.full(len(ips), width, np.uint8)
    code = arch.make_call(ips, addrs, widths, abi)
    state, addr, read, got = arch.decode(code, ips, abi)
    assert (state == State.CALL).all()
    assert (addr == addrs).all() and (read == widths).all() and not got.any()


def test_x86_reaches_two_gigabytes() -> None:
    arch = ARCHES["x86_64"]
    ip = 0x7000_0000_0000
    # rel32 counts from the end of the instruction, which has five or six bytes: both must do.
    lowest, highest = ip + 6 - (1 << 31), ip + 5 + (1 << 31) - 1
    inside = [lowest, lowest + 1, ip, highest - 1, highest]
    outside = [lowest - 1, highest + 1, ip + (1 << 32), 0, (1 << 64) - 1]
    assert arch.reachable(_u64([ip] * 5), _u64(inside)).all()
    assert not arch.reachable(_u64([ip] * 5), _u64(outside)).any()
    for width in (5, 6):
        code = arch.make_call(
            _u64([ip] * 5), _u64(inside), np.full(5, width, np.uint8), Abi(pad=True)
        )
        assert (arch.decode(code, _u64([ip] * 5), Abi(pad=True))[1] == _u64(inside)).all()


def test_x86_reaches_over_the_end_of_the_address_space() -> None:
    """Kernel text lies within 2 GB of it, and a branch wraps around."""
    arch = ARCHES["x86_64"]
    ip, addr = _u64([0xFFFF_FFFF_FFFF_F000, 0x1000]), _u64([0x1000, 0xFFFF_FFFF_FFFF_F000])
    assert arch.reachable(ip, addr).all()


def test_i386_reaches_everything() -> None:
    arch = ARCHES["i386"]
    ips, addrs = _u64([0, 0, 0xFFFF_FFFF, 0x8000_0000]), _u64([0xFFFF_FFFF, 1 << 31, 0, 0])
    assert arch.reachable(ips, addrs).all()
    code = arch.make_call(ips, addrs, np.full(4, 5, np.uint8), Abi(pad=True))
    assert (arch.decode(code, ips, Abi(pad=True))[1] == addrs).all()


def test_arm64_reaches_128_megabytes_of_words() -> None:
    arch = ARCHES["arm64"]
    ip, reach = 0xFFFF_8000_0800_0004, 1 << 27
    inside = [ip - reach, ip - reach + 4, ip, ip + 4, ip + reach - 4]
    outside = [ip - reach - 4, ip + reach, ip + reach + 4, ip + 2, ip + 1]
    assert arch.reachable(_u64([ip] * 5), _u64(inside)).all()
    assert not arch.reachable(_u64([ip] * 5), _u64(outside)).any()


def test_riscv64_reaches_two_gigabytes_less_the_rounding() -> None:
    """[-2^31 - 2^11, 2^31 - 2^11), as riscv_insn_valid_32bit_offset has it (Linux,
    arch/riscv/kernel/module.c), from ip, and from four before it where that is the pair's start."""
    arch = ARCHES["riscv64"]
    ip, reach = 0xFFFF_FFFF_8000_1000, 1 << 31
    lowest, highest = ip - reach - 0x800, ip + reach - 0x800 - 6
    inside = [lowest, lowest + 2, ip, highest - 2, highest]
    outside = [lowest - 2, highest + 2, ip + 1, ip + (1 << 32), 0x1000]
    top = (1 << 64) - 1
    ips, addrs = _u64([ip] * 5), _u64([addr & top for addr in inside])
    assert arch.reachable(ips, addrs).all(), "also over the end of the address space"
    assert not arch.reachable(ips, _u64([addr & top for addr in outside])).any()
    for abi in (Abi(pad=True), OPS, Abi()):
        code = arch.make_call(ips, addrs, np.full(5, 8, np.uint8), abi)
        assert (arch.decode(code, ips, abi)[1] == addrs).all()
