# SPDX-License-Identifier: MIT
"""Ready-made images: small, whole, and with every part at hand for a test to break."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.support.elf_writer import (
    PF_R,
    PF_W,
    PF_X,
    SHF_ALLOC,
    SHF_EXECINSTR,
    SHF_WRITE,
    SHT_RELA,
    SHT_RELR,
    Image,
    Section,
    Segment,
    Symbol,
)
from tests.support.tables import rela, relr

__all__ = [
    "FUNCTIONS",
    "RELATIVE",
    "STEP",
    "arm64_callops_kernel",
    "arm64_rela_kernel",
    "arm64_relr_kernel",
    "call32",
    "fentry_kernel",
    "pad_program",
    "section",
    "symbols_at",
]

FUNCTIONS = ("vfs_read", "vfs_write", "do_exit", "schedule", "__x64_sys_read", "ksys_dup3")
STEP = 64
"""Bytes from one function to the next; ``__fentry__`` and others share the first."""
RELATIVE = 1027  # R_AARCH64_RELATIVE
X86, ARM64 = 62, 183
X86_BASE, ARM64_BASE, PROGRAM_BASE = 0xFFFF_FFFF_8100_0000, 0xFFFF_8000_8001_0000, 0x40_1000
NOP_ARM64, RET_ARM64 = bytes.fromhex("1f2003d5"), bytes.fromhex("c0035fd6")
RET = b"\xc3"


def call32(ip: int, addr: int) -> bytes:
    """``call addr`` at ip."""
    return b"\xe8" + ((addr - ip - 5) & 0xFFFF_FFFF).to_bytes(4, "little")


def section(image: Image, name: str) -> Section:
    """The section of that name."""
    return next(s for s in image.sections if s.name == name)


def symbols_at(base: int, names: Sequence[str] = FUNCTIONS, step: int = STEP) -> dict[str, int]:
    """Where the functions of an image with this base begin."""
    return {name: base + STEP + step * i for i, name in enumerate(names)}


def _image(
    machine: int,
    base: int,
    names: Sequence[str],
    site: Callable[[int], bytes],
    helpers: dict[str, int],
    fill: bytes,
    step: int = STEP,
) -> Image:
    """.text with ``site`` (of its address) at the entry of each function, and their symbols."""
    places = symbols_at(base, names, step)
    text = bytearray(fill * ((STEP + step * len(names)) // len(fill)))
    for at in places.values():
        code = site(at)
        text[at - base : at - base + len(code)] = code
    symbols = [Symbol(name, base + at, 8) for name, at in helpers.items()]
    symbols += [Symbol(name, at, step) for name, at in places.items()]
    flags = SHF_ALLOC | SHF_EXECINSTR
    return Image(
        machine,
        sections=[Section(".text", bytes(text), base, flags=flags)],
        segments=[Segment((".text",), PF_R | PF_X)],
        symbols=symbols,
    )


def _bounds(image: Image, base: int, table: int, size: int) -> None:
    """What a linked kernel says of its text and table instead of a section."""
    end = base + len(section(image, ".text").data)
    for name, value, where in (
        ("_stext", base, ".text"),
        ("_etext", end, ".text"),
        ("_sinittext", base + 0x30000, ".text"),
        ("_einittext", base + 0x31000, ".text"),
        ("__start_mcount_loc", table, ".init.data"),
        ("__stop_mcount_loc", table + size, ".init.data"),
    ):
        image.symbols.append(Symbol(name, value, type=0, section=where))


def fentry_kernel(names: Sequence[str] = FUNCTIONS, *, nulls: int = 0, step: int = STEP) -> Image:
    """x86_64: ``call __fentry__`` at every entry, a sorted table in .init.data behind ``nulls``."""
    base = X86_BASE
    helpers = {"__fentry__": 8, "ftrace_stub": 16, "ftrace_caller": 24, "ftrace_regs_caller": 32}
    image = _image(X86, base, names, lambda at: call32(at, base + 8) + RET, helpers, b"\xcc", step)
    table = image.table([0] * nulls + list(symbols_at(base, names, step).values()))
    at = base + ((step * len(names) & ~0xFFFF) + 0x10000)
    image.sections.append(Section(".init.data", table, at, flags=SHF_ALLOC | SHF_WRITE))
    image.segments.append(Segment((".init.data",), PF_R | PF_W))
    _bounds(image, base, at, len(table))
    return image


def pad_program(
    pad: bytes = b"\x90" * 5, names: Sequence[str] = FUNCTIONS, *, machine: int = X86
) -> Image:
    """A static program with ``pad`` at every entry and the section of the table."""
    base = PROGRAM_BASE
    fill = NOP_ARM64 if machine == ARM64 else b"\xcc"
    ret = RET_ARM64 if machine == ARM64 else RET
    image = _image(machine, base, names, lambda _: pad + ret, {"ftrace_caller": 16}, fill)
    table = image.table(symbols_at(base, names).values())
    at, name = base + 0x10000, "__patchable_function_entries"
    image.sections.append(Section(name, table, at, flags=SHF_ALLOC | SHF_WRITE, align=8))
    image.segments.append(Segment((name,), PF_R | PF_W))
    return image


def _arm64(names: Sequence[str], site: bytes, before: int, nulls: int) -> tuple[Image, list[int]]:
    """An ET_DYN kernel, and the values of its table."""
    base = ARM64_BASE

    def code(_: int) -> bytes:
        return site + RET_ARM64

    helpers = {"ftrace_stub": 8, "ftrace_caller": 16, "ftrace_nop_ops": 24}
    if not before:
        del helpers["ftrace_nop_ops"]
    image = _image(ARM64, base, names, code, helpers, NOP_ARM64)
    image.type = 3
    return image, [0] * nulls + [at - before for at in symbols_at(base, names).values()]


def arm64_rela_kernel(names: Sequence[str] = FUNCTIONS, *, spare: int = 0) -> Image:
    """6.1: the table's bytes are zero, its values are addends; ``spare`` entries of type NONE."""
    image, values = _arm64(names, NOP_ARM64 * 2, 0, 0)
    at = ARM64_BASE + 0x10000
    rows = [(at + 8 * i, RELATIVE, 0, value) for i, value in enumerate(values)]
    _data(image, at, bytes(8 * len(values)))
    _relocations(image, ".rela.dyn", SHT_RELA, rela(image, rows + [(0, 0, 0, 0)] * spare))
    return image


def arm64_relr_kernel(names: Sequence[str] = FUNCTIONS, *, nulls: int = 0) -> Image:
    """Values in place and a RELR table over them, with an unrelated word before the table."""
    image, values = _arm64(names, NOP_ARM64 * 2, 0, nulls)
    at = ARM64_BASE + 0x10000
    _data(image, at, image.table(values))
    # Another pointer stands right before, so that no record is the address word of the run.
    _word_before(image, at)
    places = [at - 8, *(at + 8 * i for i in range(len(values)))]
    _relocations(image, ".relr.dyn", SHT_RELR, relr(image, places))
    return image


def _word_before(image: Image, at: int) -> None:
    data = section(image, ".init.data")
    data.address, data.data = at - 8, image.table([ARM64_BASE]) + data.data


def arm64_callops_kernel(
    names: Sequence[str] = FUNCTIONS, *, nulls: int = 2, spare: int = 8
) -> Image:
    """6.12: 4,2 with a literal before each function, RELR for the table, ``spare`` NONE entries."""
    image, values = _arm64(names, NOP_ARM64 * 2, 8, nulls)
    at = ARM64_BASE + 0x10000
    _data(image, at, image.table(values))
    _word_before(image, at)
    places = [at - 8, *(at + 8 * i for i in range(len(values)))]
    _relocations(image, ".relr.dyn", SHT_RELR, relr(image, places))
    _relocations(image, ".rela.dyn", SHT_RELA, rela(image, [(0, 0, 0, 0)] * spare))
    return image


def _data(image: Image, at: int, table: bytes) -> None:
    image.sections.append(Section(".init.data", table, at, flags=SHF_ALLOC | SHF_WRITE, align=8))
    image.segments.append(Segment((".init.data",), PF_R | PF_W))
    _bounds(image, ARM64_BASE, at, len(table))


def _relocations(image: Image, name: str, kind: int, data: bytes) -> None:
    at = ARM64_BASE + (0x20000 if kind == SHT_RELA else 0x30000)
    entsize = 24 if kind == SHT_RELA else 8
    image.sections.append(Section(name, data, at, kind, SHF_ALLOC, 8, entsize=entsize))
    image.segments.append(Segment((name,), PF_R))
