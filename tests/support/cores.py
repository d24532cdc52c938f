# SPDX-License-Identifier: MIT
"""A small x86_64 kernel with tables of what it patches, and cores of it: the note and the segments
that kdump writes, by virtual addresses.

The text is laid out by hand, as the compiler and objtool leave it:

    vfs_read+16     0f 1f 44 00 00    static key's branch, to vfs_read+48
    vfs_write+16    0f ae f0          mfence; lfence where the feature is there; three such
    do_exit+16      e9 rel32          jmp __x86_return_thunk
    schedule+16     e8 rel32          static call, of ftrace_stub
    schedule+32     f0                lock
    ksys_dup3+16    4 bytes           the address of vfs_read
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from tests.support.elf_writer import SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, Section, Segment, Symbol
from tests.support.images import FUNCTIONS, call32, fentry_kernel, section, symbols_at

__all__ = ["BASE", "BUILD_ID", "FENCES", "KEY", "NOP5", "PLACES", "STATIC_KEY", "Kernel", "core"]

BASE = 0xFFFF_FFFF_8100_0000
BUILD_ID = bytes(range(20))
PLACES = symbols_at(BASE)
STUB, CALLER, THUNK = BASE + 16, BASE + 24, BASE + 48
FENCES = tuple(PLACES["vfs_write"] + at for at in (16, 24, 32))
NOP5 = bytes.fromhex("0f1f440000")  # nopl 0(%rax,%rax)
MFENCE, LFENCE = bytes.fromhex("0faef0"), bytes.fromhex("0faee8")
TABLES, DATA, INIT = BASE + 0x18000, BASE + 0x1A000, BASE + 0x20000
KEY, STATIC_KEY, POINTER = DATA, DATA + 16, DATA + 32
FEATURE = 7
TEXT_SIZE = 0x2000
STRUCTS: dict[str, tuple[int, dict[str, int]]] = {
    "ftrace_ops": (64, {"func": 0, "next": 8, "func_hash": 32, "trampoline": 40}),
    "ftrace_hash": (40, {"size_bits": 0, "buckets": 8, "count": 16}),
    "jump_entry": (16, {"code": 0, "target": 4, "key": 8}),
    "alt_instr": (
        12,
        {"instr_offset": 0, "repl_offset": 4, "cpuid": 8, "instrlen": 10, "replacementlen": 11},
    ),
    "static_call_site": (8, {"addr": 0, "key": 4}),
}
"""Size and members of each structure, as v6.1 has them."""


def _btf() -> bytes:
    """A .BTF section of these structures; all members are of type 0."""
    strings, types = b"\0", b""

    def name(text: str) -> int:
        nonlocal strings
        strings += text.encode() + b"\0"
        return len(strings) - len(text) - 1

    for title, (size, members) in STRUCTS.items():
        types += struct.pack("<III", name(title), 4 << 24 | len(members), size)
        for member, offset in members.items():
            types += struct.pack("<III", name(member), 0, 8 * offset)
    head = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(strings))
    return head + types + strings


def _jump(at: int, target: int) -> bytes:
    """``jmp target`` at ``at``."""
    return b"\xe9" + ((target - at - 5) & 0xFFFF_FFFF).to_bytes(4, "little")


@dataclass
class Kernel:
    """``btf``: its section, None for none."""

    btf: bytes | None = field(default_factory=_btf)
    build_id: bytes = BUILD_ID

    def file(self) -> bytes:
        """The vmlinux."""
        image = fentry_kernel()
        text = section(image, ".text")
        text.data = bytes(self._text(text.data))
        tables, names = self._tables()
        allocated = SHF_ALLOC | SHF_WRITE
        note = struct.pack("<III", 4, len(self.build_id), 3) + b"GNU\0" + self.build_id
        for part in (
            Section(".altinstr_replacement", LFENCE, INIT, flags=SHF_ALLOC | SHF_EXECINSTR),
            *tables,
            Section(".data", self.data(), DATA, flags=allocated),
            Section(".notes", note, DATA + 0x1000, type=7, align=4),
        ):
            image.sections.append(part)
            image.segments.append(Segment((part.name,)))
        if self.btf is not None:
            image.sections.append(Section(".BTF", self.btf, flags=0))
        names |= {"__x86_return_thunk": THUNK, "x86_return_thunk": POINTER, "__init_begin": INIT}
        names |= {"__init_end": INIT + 0x20000, "__SCK__one": STATIC_KEY, "panic": BASE + 40}
        image.symbols += [Symbol(name, at, 0, 0) for name, at in names.items()]
        return image.build()

    def _text(self, data: bytes) -> bytearray:
        text = bytearray(data.ljust(TEXT_SIZE, b"\xcc"))
        at = PLACES["do_exit"] + 16, PLACES["schedule"] + 16
        for place, code in (
            (PLACES["vfs_read"] + 16, NOP5),
            *((fence, MFENCE) for fence in FENCES),
            (at[0], _jump(at[0], THUNK)),
            (at[1], call32(at[1], STUB)),
            (PLACES["schedule"] + 32, b"\xf0"),
            (PLACES["ksys_dup3"] + 16, (PLACES["vfs_read"] & 0xFFFF_FFFF).to_bytes(4, "little")),
        ):
            text[place - BASE : place - BASE + len(code)] = code
        return text

    def _tables(self) -> tuple[list[Section], dict[str, int]]:
        """Sections of places, each a page from the next, and the symbols around them."""
        made: list[Section] = []
        bounds: dict[str, int] = {}

        def rows(name: str, around: tuple[str, str] | None, *numbers: tuple[str, int]) -> None:
            start, data = TABLES + 0x400 * len(made), b""
            for form, value in numbers:  # a capital R: a distance from itself, as .long x - . is
                if form == "R":
                    data += struct.pack("<I", (value - start - len(data)) & 0xFFFF_FFFF)
                elif form == "L":
                    data += struct.pack("<Q", (value - start - len(data)) & (1 << 64) - 1)
                else:
                    data += struct.pack(form, value)
            made.append(Section(name, data, start, align=1))
            if around:
                bounds.update(zip(around, (start, start + len(data)), strict=True))

        read = PLACES["vfs_read"]
        branch = ("R", read + 16), ("R", read + 48), ("L", KEY)
        rows("jumps", ("__start___jump_table", "__stop___jump_table"), *branch)
        fences = [
            number
            for at in FENCES
            for number in (("R", at), ("R", INIT), ("<H", FEATURE), ("<B", 3), ("<B", 3))
        ]
        rows("alternatives", ("__alt_instructions", "__alt_instructions_end"), *fences)
        around = "__start_static_call_sites", "__stop_static_call_sites"
        rows("calls", around, ("R", PLACES["schedule"] + 16), ("R", STATIC_KEY))
        rows(".return_sites", None, ("R", PLACES["do_exit"] + 16))
        rows(".smp_locks", None, ("R", PLACES["schedule"] + 32))
        return made, bounds

    def data(self, *, key: int = 0, called: int = STUB, thunk: int = THUNK, bias: int = 0) -> bytes:
        """Its data: a static key, what the static call's key has, and the return thunk."""
        mask = (1 << 64) - 1
        held = bytearray(0x100)
        struct.pack_into("<i", held, KEY - DATA, key)
        struct.pack_into("<Q", held, STATIC_KEY - DATA, called + bias & mask)
        struct.pack_into("<Q", held, POINTER - DATA, thunk + bias & mask)
        return bytes(held)

    def booted(self, changes: dict[int, bytes] | None = None) -> bytes:
        """Its text in memory: every site is a NOP; and at link addresses, other bytes."""
        text = self._text(section(fentry_kernel(), ".text").data)
        sites = {PLACES[name]: NOP5 for name in FUNCTIONS}
        for at, code in (sites | (changes or {})).items():
            text[at - BASE : at - BASE + len(code)] = code
        return bytes(text)

    def core(self, changes: dict[int, bytes] | None = None, *, bias: int = 0, **data: int) -> bytes:
        """A core with that text, and with ``data``."""
        parts = [(BASE + bias, self.booted(changes)), (DATA + bias, self.data(bias=bias, **data))]
        return core(self.build_id, parts, bias=bias)


def core(build_id: bytes, parts: list[tuple[int, bytes]], *, bias: int = 0) -> bytes:
    """A core that holds memory at these virtual addresses."""
    lines = [
        "OSRELEASE=6.1.0-made", f"BUILD-ID={build_id.hex()}", "PAGESIZE=4096",
        f"SYMBOL(_stext)={BASE + bias:x}", f"SYMBOL(swapper_pg_dir)={BASE + bias:x}",
        f"KERNELOFFSET={bias:x}", "NUMBER(phys_base)=0", "",
    ]  # fmt: skip
    info = "\n".join(lines).encode()
    note = struct.pack("<III", 11, len(info), 0) + b"VMCOREINFO\0\0" + info
    count, end = 1 + len(parts), 0x1000
    rows = [(4, 0, 64 + 56 * count, 0, 0, len(note), len(note), 4)]
    body = b""
    for at, held in parts:
        offset = end + len(body)
        rows.append((1, 7, offset, at, offset, len(held), len(held), 0))
        body += held + bytes(-len(held) % 0x1000)
    head = b"\x7fELF\2\1\1" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 4, 62, 1, 0, 64, 0, 0, 64, 56, count, 0, 0, 0)
    return (head + b"".join(struct.pack("<IIQQQQQQ", *row) for row in rows) + note).ljust(
        end, b"\0"
    ) + body
