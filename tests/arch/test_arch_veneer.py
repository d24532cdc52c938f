# SPDX-License-Identifier: MIT
"""Veneers: as GNU ld links them, as Capstone reads them, at the edges of what they reach."""

from __future__ import annotations

import random

import pytest

from ftpatch.arch import architectures
from tests.support.gnu import link_at
from tests.support.readers import disassembled, target_of

ARCHES = {arch.name: arch for arch in architectures().values()}
ARM64 = ARCHES["arm64"]
READ = [name for name, arch in ARCHES.items() if arch.capstone]
"""The others are asked of objdump (test_loongarch64.py)."""
PAGE, REACH = 0x1000, 1 << 32
TEXT = "adrp x16, target\nadd x16, x16, :lo12:target\nbr x16"
BASE = 0xFFFF_8000_0800_0000


def _pairs() -> list[tuple[int, int]]:
    rng = random.Random(4096)
    pairs = []
    for i in range(60):
        # One at each end of a page and of what imm21 pages reach; places do not overlap.
        at = BASE + i * 0x10000 + rng.choice([0, 4, PAGE - 4, PAGE - 8, PAGE - 12, 0x234])
        page = at // PAGE * PAGE
        first, last = page - REACH, page + REACH - 4
        addr = rng.choice(
            [first, first + 4, last, last - PAGE + 4, page, page - 4, page + PAGE, at + 12]
        )
        pairs.append((at, addr if i % 2 else BASE + rng.randrange(-REACH + (1 << 24), REACH // 2)))
    return [(at, addr & ~3) for at, addr in pairs]


def test_gnu_ld_agrees() -> None:
    pairs = _pairs()
    linked = link_at("arm64", [(at, TEXT, addr) for at, addr in pairs])
    assert linked == [ARM64.veneer(at, addr) for at, addr in pairs]


def test_capstone_follows_it() -> None:
    for at, addr in _pairs():
        code = ARM64.veneer(at, addr)
        assert len(code) == ARM64.veneer_size
        adrp, add, br = disassembled("arm64", code, at)
        assert [adrp.mnemonic, add.mnemonic, br.mnemonic] == ["adrp", "add", "br"]
        assert adrp.op_str.startswith("x16, ") and add.op_str.startswith("x16, x16, ")
        assert br.op_str == "x16", "IP0 is what a callee may lose between call and entry"
        page = adrp.operands[1].imm & 0xFFFF_FFFF_FFFF_FFFF
        assert page + add.operands[2].imm == addr


def test_veneer_target_is_the_inverse() -> None:
    for at, addr in _pairs():
        code = ARM64.veneer(at, addr) + bytes(20)
        assert ARM64.veneer_target(code, at) == addr
        landing = bytes.fromhex("5f2403d5")  # bti c
        assert ARM64.veneer_target(landing + code, at - 4) == addr


@pytest.mark.parametrize("inside", [0, 4, PAGE - 12])
def test_it_reaches_four_gigabytes_of_pages(inside: int) -> None:
    at, page = BASE + inside, BASE
    for addr in (page - REACH, page + REACH - PAGE, page + REACH - 4):
        assert ARM64.veneer(at, addr), hex(addr)
    for addr in (page - REACH - 4, page + REACH, page + REACH + PAGE):
        assert ARM64.veneer(at, addr) == b"", hex(addr)


LOADS = bytes.fromhex("cbf37d92 6b015ff8")  # bic x11, x30, #7; ldr x11, [x11, #-16]
BTI_C = bytes.fromhex("5f2403d5")


@pytest.mark.parametrize("landing", [b"", BTI_C])
def test_an_ops_stub_is_what_gnu_ld_links(landing: bytes) -> None:
    """It has the pointer that ftrace_caller would load, and goes on behind the load."""
    ops, caller = BASE + 0x140_0018, BASE + 0x1314
    for at in (BASE + 0x2F38, BASE + (1 << 26), BASE - 0x1000):
        text = f"adrp x11, target\nadd x11, x11, :lo12:target\nb target-{ops - caller:#x}"
        onward = text + f"+{len(landing) + 8}"
        (linked,) = link_at("arm64", [(at, onward, ops)])
        stub = ARM64.ops_stub(at, landing + LOADS + bytes(8), caller, ops)
        assert stub == linked and ARM64.is_ops_stub(stub)
        assert ARM64.veneer_target(stub + bytes(20), at) == caller + len(landing) + 8


def test_an_ops_stub_needs_a_caller_that_loads_and_reach() -> None:
    other = bytes.fromhex("cbf37d92 6b815ff8") + bytes(8)  # another displacement
    assert ARM64.ops_stub(BASE, other, BASE + 0x100, BASE) == b""
    good = LOADS + bytes(8)
    assert ARM64.ops_stub(BASE, good, BASE + (1 << 27) + 8, BASE) == b""
    assert ARM64.ops_stub(BASE, good, BASE + 0x100, BASE + REACH) == b""
    assert not ARM64.is_ops_stub(ARM64.veneer(BASE, BASE + 0x100))


def test_a_plt_entry_gives_its_slot() -> None:
    slot, at = 0x41_F018, 0x40_0650
    text = "adrp x16, target\nldr x17, [x16, :lo12:target]\nadd x16, x16, :lo12:target\nbr x17"
    (code,) = link_at("arm64", [(at, text, slot)])
    assert ARM64.veneer_target(code + bytes(16), at) == -slot
    (code,) = link_at("arm64", [(at, "bti c\n" + text, slot)])
    assert ARM64.veneer_target(code + bytes(16), at) == -slot


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x86_64", "jmp *target(%rip)"),
        ("x86_64", "endbr64\njmp *target(%rip)"),
        ("x86_64", "endbr64\nbnd jmp *target(%rip)"),
        ("i386", "jmp *target"),
        ("i386", "endbr32\njmp *target"),
    ],
)
def test_an_x86_plt_entry_gives_its_slot(name: str, text: str) -> None:
    slot, at = 0x40_4018, 0x40_1030
    (code,) = link_at(name, [(at, text, slot)])
    assert ARCHES[name].veneer_target(code + bytes(16), at) == -slot


@pytest.mark.parametrize("name", ["x86_64", "i386", "riscv64"])
def test_what_reaches_two_gigabytes_has_none(name: str) -> None:
    assert ARCHES[name].veneer_size == 0 and ARCHES[name].veneer(BASE, BASE + REACH) == b""


@pytest.mark.parametrize("name", READ)
def test_other_code_is_no_veneer(name: str) -> None:
    rng = random.Random(1)
    for _ in range(300):
        code = rng.randbytes(ARCHES[name].around)
        insn = disassembled(name, code, 0x1000)
        if insn and insn[0].mnemonic in (
            "adrp",
            "jmp",
            "bnd jmp",
            "endbr64",
            "endbr32",
            "bti",
            "b",
        ):
            continue
        assert ARCHES[name].veneer_target(code, 0x1000) == 0


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("site", ["ftrace_call", "ftrace_graph_call"])
def test_named_sites_are_what_the_kernel_writes(name: str, site: str) -> None:
    """ftrace_call is a call; ftrace_graph_call a jump, which arm64 replaces by a NOP."""
    from ftpatch.arch import Abi

    arch = ARCHES[name]
    ip, addr = (0xC100_0000, 0xC0F0_0010) if arch.elf_class == 32 else (BASE, BASE - 0xF_FFF0)
    code = arch.named_site_code(site, ip, addr, Abi())
    graph, arm64 = (
        "graph" in site,
        name in ("arm", "arm64", "ppc64le"),
    )  # whose branches are b and bl
    if name == "s390x":  # where ftrace_caller calls through variables
        assert (code, arch.named_site_target(site, code, ip)) == (b"", None)
        return
    assert arch.named_site_target(site, code, ip) == addr
    if name == "riscv64":  # both are calls
        assert [code] == link_at(name, [(ip, "call target", addr)])
        assert arch.named_site_rest(site) == "ftrace_stub"
        rest = arch.named_site_code(site, ip, 0, Abi())
        assert arch.named_site_target(site, rest, ip) == (0 if graph else None)
        return
    (insn,) = disassembled(name, code, ip)
    assert insn.mnemonic == {(0, 0): "call", (0, 1): "bl", (1, 0): "jmp", (1, 1): "b"}[graph, arm64]
    assert target_of(insn) & ((1 << arch.elf_class) - 1) == addr
    other = "ftrace_graph_call" if not graph else "ftrace_call"
    assert arch.named_site_target(other, code, ip) is None
    leads = "" if graph and arm64 else "ftrace_stub"
    if name == "ppc64le":
        leads = "ftrace_graph_stub" if graph else "ftrace_stub"
    assert arch.named_site_rest(site) == leads
    if graph and name in ("arm", "arm64"):
        assert arch.named_site_target(site, arch.named_site_code(site, ip, 0, Abi()), ip) == 0
