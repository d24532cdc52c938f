# SPDX-License-Identifier: MIT
"""Where calls go: targets by name and address, veneers in padding, named sites out of reach."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.command import Result, ftpatch
from tests.support.cross_images import BASE, CROSS_PROGRAMS, cross_program
from tests.support.elf_writer import (
    PF_R,
    PF_X,
    SHF_ALLOC,
    SHF_EXECINSTR,
    Image,
    Section,
    Segment,
    Symbol,
)
from tests.support.images import (
    FUNCTIONS,
    STEP,
    arm64_rela_kernel,
    call32,
    fentry_kernel,
    pad_program,
    section,
    symbols_at,
)
from tests.support.readers import disassembled, target_of

ARM64, X86, PROGRAM = 0xFFFF_8000_8001_0000, 0xFFFF_FFFF_8100_0000, 0x40_1000
FAR = ARM64 + (1 << 28)
NOP = bytes.fromhex("1f2003d5")


def _write(image: Image, folder: Path) -> Path:
    path = folder / "image"
    path.write_bytes(image.build())
    return path


def _with_far(image: Image, at: int) -> Image:
    """Another piece of text, out of reach."""
    flags = SHF_ALLOC | SHF_EXECINSTR
    image.sections.append(Section(".text.far", NOP * 4, at, flags=flags))
    image.segments.append(Segment((".text.far",), PF_R | PF_X))
    image.symbols.append(Symbol("far", at, 16, section=".text.far"))
    return image


def _with_gaps(size: int = 16, far: int = FAR) -> Image:
    """An arm64 kernel whose functions are ``size`` bytes, followed by NOPs up to the next, and no
    room before the first."""
    image = _with_far(arm64_rela_kernel(), far)
    names = symbols_at(ARM64)
    image.symbols = [
        replace(s, size=size if s.name in names else 56) if s.value < ARM64 + 1024 else s
        for s in image.symbols
    ]
    return image


def _to_far(image: Image, folder: Path, *options: str) -> Result:
    return ftpatch("enable", _write(image, folder), "--to", "far", *options)


def _sites(path: Path) -> dict[str, int]:
    return {row["symbol"]: int(row["ip"], 16) for row in ftpatch("list", "--json", path).json}


def test_what_is_out_of_reach_goes_by_way_of_one_veneer(tmp_path: Path) -> None:
    image = _with_gaps()
    assert _to_far(image, tmp_path).code == 0
    before, after = (tmp_path / "image").read_bytes(), (tmp_path / "image.ftpatch").read_bytes()
    text = section(image, ".text")
    offset = before.index(text.data)
    via = set()
    for row in ftpatch("list", "--json", tmp_path / "image.ftpatch").json:
        assert (row["state"], row["target"]) == ("call", "far"), "list sees through it"
        at = int(row["ip"], 16)
        code = after[offset + at - ARM64 :][:4]
        via.add(target_of(disassembled("arm64", code, at)[0]))
    (veneer,) = via
    # Behind the end of a function, before the next, where there was nothing but NOPs.
    assert 16 <= (veneer - ARM64) % 64 <= 64 - 12
    assert before[offset + veneer - ARM64 :][:12] == NOP * 3
    adrp, add, br = disassembled("arm64", after[offset + veneer - ARM64 :][:12], veneer)
    assert (adrp.mnemonic, add.mnemonic, br.op_str) == ("adrp", "add", "x16")
    assert (adrp.operands[1].imm & ((1 << 64) - 1)) + add.operands[2].imm == FAR
    copy = tmp_path / "image.ftpatch"
    assert ftpatch("undo", copy).code == 0 and copy.read_bytes() == before


def test_a_second_command_uses_the_veneer_of_the_first(tmp_path: Path) -> None:
    path = _write(_with_gaps(), tmp_path)
    for function in ("vfs_read", "schedule"):
        assert ftpatch("enable", "--in-place", path, "--to", "far", "-f", function).code == 0
    kinds = [row["kind"] for row in ftpatch("diff", "--json", path).json]
    assert kinds.count("code") == 1, "one veneer"


def test_a_gap_inside_a_larger_symbol_is_no_padding(tmp_path: Path) -> None:
    image = _with_gaps()
    image.symbols.append(Symbol("whole", ARM64, 64 * 7))
    result = _to_far(image, tmp_path)
    assert result.code == 1 and "padding" in result.err
    assert not (tmp_path / "image.ftpatch").exists()


def test_a_gap_with_something_in_it_is_no_padding(tmp_path: Path) -> None:
    """Functions that were overridden have lost their symbol, but not their code."""
    image = _with_gaps()
    text = section(image, ".text")
    data = bytearray(text.data)
    for at in symbols_at(ARM64).values():
        data[at - ARM64 + 44 : at - ARM64 + 48] = bytes.fromhex("c0035fd6")
    text.data = bytes(data)
    assert _to_far(image, tmp_path).code == 1


@pytest.mark.parametrize(("size", "code"), [(52, 0), (53, 1), (56, 1)])
def test_a_veneer_needs_twelve_aligned_bytes(size: int, code: int, tmp_path: Path) -> None:
    assert _to_far(_with_gaps(size), tmp_path).code == code


def test_what_no_veneer_reaches_is_refused(tmp_path: Path) -> None:
    result = _to_far(_with_gaps(far=ARM64 + (1 << 33)), tmp_path)
    assert result.code == 1 and "cannot reach" in result.err


def test_x86_has_no_veneer(tmp_path: Path) -> None:
    image = _with_far(pad_program(), PROGRAM + (1 << 32))
    result = ftpatch("enable", _write(image, tmp_path), "--to", "far")
    assert result.code == 1 and "x86_64 has no veneer" in result.err
    near = _with_far(pad_program(), PROGRAM + (1 << 31) - 0x1000)
    assert ftpatch("enable", _write(near, tmp_path), "--to", "far").code == 0


def test_a_named_site_out_of_reach_is_refused(tmp_path: Path) -> None:
    image = _with_far(arm64_rela_kernel(), FAR)
    text = section(image, ".text")
    at = ARM64 + 40
    image.symbols.append(Symbol("ftrace_call", at, 4))
    bl_stub = (0x94000000 | (8 - 40) // 4 & 0x3FFFFFF).to_bytes(4, "little")
    text.data = text.data[:40] + bl_stub + text.data[44:]
    path = _write(image, tmp_path)
    gate = ["--site", "ftrace_call", "--to"]
    result = ftpatch("enable", path, *gate, "far")
    assert result.code == 1 and "ftrace_call" in result.err and "cannot reach" in result.err
    assert ftpatch("enable", path, *gate, "vfs_read").code == 0
    call = (tmp_path / "image.ftpatch").read_bytes()
    offset = path.read_bytes().index(text.data) + 40
    assert target_of(disassembled("arm64", call[offset:][:4], at)[0]) == ARM64 + 64


def test_a_named_site_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    image = fentry_kernel()
    image.symbols.append(Symbol("ftrace_call", X86 + 40, 5))
    path = _write(image, tmp_path)
    result = ftpatch("enable", path, "--json", "--site", "ftrace_call", "--to", "vfs_read")
    assert result.code == 1 and result.only["changed"] == 0
    (failed,) = result.only["failed"]
    assert failed["actual"] == "cc:cc:cc:cc:cc" and "ftrace_call" in failed["symbol"]
    assert failed["expected"] == call32(X86 + 40, X86 + 16).hex(":"), "a call of ftrace_stub"


@pytest.mark.parametrize(
    ("to", "code", "words"),
    [
        ("vfs_write", 0, ""),
        (hex(PROGRAM + 16), 0, ""),
        (hex(PROGRAM + 17), 0, ""),
        ("find_slot", 2, "is ambiguous (2 definitions)"),
        ("vfs_declared", 2, "no such symbol"),
        (hex(PROGRAM + 0x10000), 2, "is not code"),
        ("0x", 2, "no such symbol"),
        ("", 2, ""),
    ],
)
def test_targets(to: str, code: int, words: str, tmp_path: Path) -> None:
    image = pad_program()
    places = list(symbols_at(PROGRAM).values())
    image.symbols += [Symbol("find_slot", at, 64, bind=0) for at in places[:2]]
    image.symbols.append(Symbol("vfs_declared", 0, section=None))
    result = ftpatch("enable", _write(image, tmp_path), "--to", to)
    assert result.code == code and words in result.err
    if not code:
        wanted = int(to, 16) if to.startswith("0x") else places[1]
        ips = _sites(tmp_path / "image.ftpatch").values()
        data = (tmp_path / "image.ftpatch").read_bytes()
        start = data.index(section(image, ".text").data[:64])
        for at in ips:
            (insn,) = disassembled("x86_64", data[start + at - PROGRAM :][:5], at)
            assert target_of(insn) == wanted


@pytest.mark.parametrize("name", CROSS_PROGRAMS)
def test_a_callee_with_a_site_of_its_own(name: str, tmp_path: Path) -> None:
    """It begins where its site does, also in the second of two instruction sets."""
    path = tmp_path / "program"
    path.write_bytes(cross_program(name).build())
    before = path.read_bytes()
    done = ftpatch("enable", "--json", "--in-place", path, "--to", "vfs_read")
    assert (done.code, done.only["changed"]) == (0, len(FUNCTIONS)), done.err
    assert {row["target"] for row in ftpatch("list", "--json", path).json} == {"vfs_read"}
    again = ftpatch("enable", "--json", "--in-place", path, "--to", hex(BASE + 2 * STEP + 2))
    assert again.code == 1 and again.err.endswith("is inside a site to be changed\n")
    assert ftpatch("undo", "--all", path).code == 0 and path.read_bytes() == before
