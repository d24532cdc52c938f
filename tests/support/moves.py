# SPDX-License-Identifier: MIT
"""Functions of the machine's libraries, and how moved instructions should read."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from ftpatch.arch.disassemble import Instruction, disassemble
from ftpatch.arch.move import Immovable, Moved, Mover, Why

__all__ = ["LIBRARIES", "Function", "Library", "library", "moved_all", "reading", "table"]

FOLDERS = {
    "x86_64": ("/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"),
    "i386": ("/usr/i686-linux-gnu/lib", "/lib/i386-linux-gnu", "/lib32"),
    "arm64": ("/usr/aarch64-linux-gnu/lib", "/lib/aarch64-linux-gnu"),
    "riscv64": ("/usr/riscv64-linux-gnu/lib", "/lib/riscv64-linux-gnu"),
    "s390x": ("/usr/s390x-linux-gnu/lib", "/lib/s390x-linux-gnu"),
    "thumb": ("/usr/arm-linux-gnueabihf/lib", "/lib/arm-linux-gnueabihf"),
}
LIBRARIES = ("libc.so.6", "libstdc++.so.6")
MACHINE = {
    "x86_64": "EM_X86_64",
    "i386": "EM_386",
    "arm64": "EM_AARCH64",
    "riscv64": "EM_RISCV",
    "s390x": "EM_S390",
    "thumb": "EM_ARM",
}


@dataclass(frozen=True, slots=True)
class Function:
    """``address``: with bit 0 in Thumb."""

    address: int
    code: bytes


@dataclass(frozen=True, slots=True)
class Library:
    segments: tuple[tuple[int, bytes], ...]
    functions: tuple[Function, ...]


@cache
def library(arch: str, name: str) -> Library:
    """Loaded segments and the functions that symbols and unwind tables name; skips without it."""
    for folder in FOLDERS[arch]:
        path = Path(folder, name)
        if path.exists():
            with path.open("rb") as file:
                elf = ELFFile(file)
                if elf["e_machine"] == MACHINE[arch]:
                    return _read(elf)
    pytest.skip(f"no {name} of {arch}: install libc6 and libstdc++6, elsewhere those for cross")


def _read(elf: ELFFile) -> Library:
    segments = [s for s in elf.iter_segments() if s["p_type"] == "PT_LOAD"]
    parts = tuple((s["p_vaddr"], s.data().ljust(s["p_memsz"], b"\0")) for s in segments)
    executable = [part for part, s in zip(parts, segments, strict=True) if s["p_flags"] & 1]
    spans = dict(_unwound(elf))
    for symbol in elf.get_section_by_name(".dynsym").iter_symbols():
        if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_size"]:
            spans.setdefault(symbol["st_value"], symbol["st_size"])
    functions = []
    for address, size in sorted(spans.items()):
        even = address & ~(elf["e_machine"] == "EM_ARM")
        for start, data in executable:
            if start <= address < start + len(data):
                functions.append(Function(address, data[even - start : even - start + size]))
    return Library(parts, tuple(functions))


def _unwound(elf: ELFFile) -> Iterator[tuple[int, int]]:
    """Address and size of what .eh_frame_hdr lists: its pairs are start and FDE, each relative to
    the header, and at FDE + 12 stands the size."""
    header, frames = (elf.get_section_by_name(n) for n in (".eh_frame_hdr", ".eh_frame"))
    if header is None:
        return
    data, frame, base = header.data(), frames.data(), header["sh_addr"]
    assert data[:4] == b"\x01\x1b\x03\x3b", "pcrel sdata4, udata4, datarel sdata4"
    order = "<" if elf.little_endian else ">"
    (count,) = struct.unpack_from(f"{order}I", data, 8)
    for start, fde in struct.iter_unpack(f"{order}ii", data[12 : 12 + 8 * count]):
        (size,) = struct.unpack_from(f"{order}I", frame, base + fde - frames["sh_addr"] + 12)
        yield base + start, size


def moved_all(
    mover: Mover, arch: str, name: str, needs: tuple[int, ...], bias: int, to: int
) -> tuple[Counter[tuple[int, str]], list[tuple[Function, Moved]]]:
    """The start of every function behind its landing pad, moved; (need, why) -> how often."""
    counts: Counter[tuple[int, str]] = Counter()
    out = []
    for function in library(arch, name).functions:
        skip = mover.landing(function.code)
        site = Function(bias + function.address + skip, function.code[skip:])
        for need in needs:
            try:
                moved = mover.move(site.code, site.address, to, need)
            except Immovable as reason:
                assert reason.text.startswith("0x")
                counts[need, reason.why.name] += 1
                continue
            counts[need, "moved"] += 1
            out.append((site, moved))
    return counts, out


def table(counts: dict[str, Counter[tuple[int, str]]], needs: tuple[int, ...]) -> str:
    """What became of the functions of each library, for people."""
    lines = []
    for name, counter in counts.items():
        for need in needs:
            cells = [f"{key} {counter[need, key]}" for key in ("moved", *Why.__members__)]
            shown = ", ".join(cell for cell in cells if not cell.endswith(" 0"))
            lines.append(f"{name} need={need}: {shown}")
    return "\n".join(lines)


def reading(arch: str, code: bytes, at: int, *, slot: bool = True) -> list[str]:
    """Instructions with the addresses that they refer to; those inside of a slot as ``.+n``."""
    insns = disassemble(arch, code, at)
    assert sum(insn.size for insn in insns) == len(code), code.hex()
    return [_shown(insn, range(at, at + len(code) if slot else at)) for insn in insns]


def _shown(insn: Instruction, inside: range) -> str:
    operands = insn.operands
    if insn.target is not None:
        near = f".+{insn.target - insn.address}"
        goes = near if insn.target in inside else hex(insn.target)
        *first, last = operands.split(", ")
        assert int(last.lstrip("#"), 0) == insn.target
        operands = ", ".join([*first, goes])
    elif match := re.search(r"(-?(?:0x)?[0-9a-f]*)\(%rip", operands):
        value = insn.address + insn.size + int(match[1] or "0", 0)
        operands = f"{operands[: match.start()]}{value:#x}{operands[match.end() - 5 :]}"
    return f"{insn.mnemonic} {operands}".rstrip()
