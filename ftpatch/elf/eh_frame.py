# SPDX-License-Identifier: MIT
"""Unwind information of a detour: that of the instructions that it displaces.

    CIE   length 4 | 0 | 1 | "zR" | code, data alignment | return address | 1 | 1b | instructions
    FDE   length 4 | to the CIE 4 | start - . 4 | size 4 | 0 | instructions

An FDE of a detour begins with all instructions of the function's own FDE up to the place, without
its advances. Linux Standard Base, "Exception Frames"; DWARF 5, section 6.4.2 and table 7.29.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ftpatch.core.byte_order import LITTLE, ByteOrder
from ftpatch.elf.elf_file import Elf

__all__ = [
    "Cfi",
    "Entry",
    "Row",
    "frame_of",
    "moved_at",
    "packed",
    "pointed_at",
    "saved_at",
    "saved_by",
    "size_of_fde",
]

OPERANDS = {
    0x00: "",
    0x01: "4",
    0x02: "1",
    0x03: "2",
    0x04: "4",
    0x05: "uu",
    0x06: "u",
    0x07: "u",
    0x08: "u",
    0x09: "uu",
    0x0A: "",
    0x0B: "",
    0x0C: "uu",
    0x0D: "u",
    0x0E: "u",
    0x0F: "b",
    0x10: "ub",
    0x11: "uu",
    0x12: "uu",
    0x13: "u",
    0x14: "uu",
    0x15: "uu",
    0x16: "ub",
    0x2C: "",
    0x2D: "",
    0x2E: "u",
    0x2F: "uu",
}
"""Operands of each DW_CFA instruction: bytes, LEB128 or a block. DW_CFA_set_loc is pcrel sdata4
here."""
ADVANCE, OFFSET, RESTORE = 0x40, 0x80, 0xC0
"""Instructions in the upper two bits."""
SET_LOC, REMEMBER, RESTORE_STATE, DEF_CFA, DEF_CFA_REGISTER, DEF_CFA_OFFSET = 1, 10, 11, 12, 13, 14
ADVANCES = {2: 1, 3: 2, 4: 4}
OFFSET_EXTENDED, RESTORE_EXTENDED, UNDEFINED, EXPRESSION, VAL_EXPRESSION = 5, 6, 7, 16, 22
OFFSET_EXTENDED_SF, SAME_VALUE, REGISTER = 17, 8, 9
CFA_EXPRESSION = 15
BREG, BREGS, DEREF = 0x70, 32, 0x06
"""DW_OP_breg0, how many there are, and DW_OP_deref."""
NO_CFA = (-1, 0)
MAX_ENTRY = 1 << 16
"""Maximum size of an entry (bytes)."""


@dataclass(frozen=True)
class Row:
    """The bytes of one instruction that applies from link address ``at`` on, and the resulting CFA
    as (register, offset); NO_CFA for an expression."""

    at: int
    code: bytes
    cfa: tuple[int, int]


@dataclass(frozen=True)
class Cfi:
    """Unwind information of one function: ``head`` is its CIE's alignments and return address as
    encoded there, ``initial`` its CIE's instructions, ``cfa`` what they define; ``rows`` are its
    FDE's; ``order``: the file's."""

    head: bytes
    initial: bytes
    cfa: tuple[int, int]
    rows: Sequence[Row]
    order: ByteOrder = LITTLE


@dataclass(frozen=True)
class Entry:
    """Unwind information for ``size`` bytes at link address ``start``: instructions, each with the
    offset from which it applies."""

    cfi: Cfi
    start: int
    size: int
    instructions: Sequence[tuple[int, bytes]]


def frame_of(elf: Elf, frame: int) -> Cfi | None:
    """Parse the FDE at link address ``frame``; None for an unknown form."""
    try:
        return _read(elf, frame)
    except (IndexError, KeyError):
        return None


def _read(elf: Elf, frame: int) -> Cfi | None:
    fde = _bytes(elf, frame)
    order = elf.order
    pointer, start = order.integer(fde[4:8]), int(order.signed(fde[8:12], 4)[0])
    cie = _bytes(elf, frame + 4 - pointer)
    identity, version = order.integer(cie[4:8]), cie[8]
    text, _, rest = cie[9:].partition(b"\0")
    if identity or version not in (1, 3) or not text.startswith(b"z") or b"S" in text:
        return None
    at = len(cie) - len(rest)
    after = _skip(cie, _skip(cie, at, "u"), "u")
    after = after + 1 if version == 1 else _skip(cie, after, "u")  # the return address's column
    head = cie[at:after]
    after, size = _uleb(cie, after)
    initial = cie[after + size :]
    rows = list(_rows(initial, 0, NO_CFA, 1, order))
    cfa = rows[-1].cfa if rows else NO_CFA
    _, alignment = _uleb(head, 0)
    at, size = _uleb(fde, 16)
    body = list(_rows(fde[at + size :], frame + 8 + start, cfa, alignment, order))
    kept = b"".join(row.code for row in rows)
    return Cfi(head, kept, cfa, body, order)


def saved_at(cfi: Cfi, address: int) -> tuple[tuple[int, int], dict[int, int | None]]:
    """The CFA at a link address, as in Row, and where each register of the caller is saved, by
    number: bytes from the CFA on, None where it is nowhere, or not at such a place."""
    _, alignment = _sleb(cfi.head, _skip(cfi.head, 0, "u"))
    first = list(_rows(cfi.initial, 0, NO_CFA, 1, cfi.order))
    cfa, initial = cfi.cfa, dict[int, int | None]()
    saved, kept = initial, list[dict[int, int | None]]()
    for number, row in enumerate([*first, *cfi.rows]):
        if number >= len(first):
            if row.at > address:
                break
            cfa = row.cfa
        if number == len(first):
            saved = dict(initial)
        op, code = row.code[0], row.code
        if op & 0xC0 == OFFSET:
            saved[op & 0x3F] = _uleb(code, 1)[1] * alignment
        elif op & 0xC0 == RESTORE:
            saved.pop(op & 0x3F, None)
            saved |= {key: at for key, at in initial.items() if key == op & 0x3F}
        elif op == OFFSET_EXTENDED:
            at, register = _uleb(code, 1)
            saved[register] = _uleb(code, at)[1] * alignment
        elif op == OFFSET_EXTENDED_SF:
            at, register = _uleb(code, 1)
            saved[register] = _sleb(code, at)[1] * alignment
        elif op == RESTORE_EXTENDED:
            register = _uleb(code, 1)[1]
            saved.pop(register, None)
            saved |= {key: at for key, at in initial.items() if key == register}
        elif op in (UNDEFINED, EXPRESSION, VAL_EXPRESSION):
            saved[_uleb(code, 1)[1]] = None
        elif op == REMEMBER:
            kept.append(dict(saved))
        elif op == RESTORE_STATE:
            saved = kept.pop()
    return cfa, saved


def saved_by(code: bytes) -> int | None:
    """The number of the register that a row's instruction tells the place of, from the CFA; None if
    it is another one."""
    if code[0] & 0xC0 == OFFSET:
        return code[0] & 0x3F
    return _uleb(code, 1)[1] if code[0] in (OFFSET_EXTENDED, OFFSET_EXTENDED_SF) else None


def _until(cfi: Cfi, address: int) -> Iterator[tuple[int, bytes]]:
    """What a function's own rows say up to a link address: opcodes, and the whole of them."""
    for row in cfi.rows:
        if row.at > address:
            return
        yield row.code[0], row.code


def moved_at(cfi: Cfi, address: int) -> dict[int, int]:
    """The registers that other registers hold at a link address, by number."""
    moved, kept = dict[int, int](), list[dict[int, int]]()
    for op, code in _until(cfi, address):
        if op == REGISTER:
            at, register = _uleb(code, 1)
            moved[register] = _uleb(code, at)[1]
        elif op == REMEMBER:
            kept.append(dict(moved))
        elif op == RESTORE_STATE:
            moved = kept.pop()
        elif op & 0xC0 in (OFFSET, RESTORE):
            moved.pop(op & 0x3F, None)
        elif op in (RESTORE_EXTENDED, SAME_VALUE, OFFSET_EXTENDED, OFFSET_EXTENDED_SF):
            moved.pop(_uleb(code, 1)[1], None)
    return moved


def pointed_at(cfi: Cfi, address: int) -> tuple[tuple[int, int] | None, dict[int, tuple[int, int]]]:
    """Read the expressions of functions whose frame is aligned further, at a link address, each as
    (register, offset): where the CFA is read from, and where registers are saved.

    | aligned frame ... | rbp | CFA's distance |     CFA: breg6 -8, deref; rbp: breg6 0
                          ^ rbp
    """
    cfa: tuple[int, int] | None = None
    saved, kept = dict[int, tuple[int, int]](), list[Any]()
    for op, code in _until(cfi, address):
        if op == CFA_EXPRESSION:
            at, size = _uleb(code, 1)
            *place, last = code[at : at + size] or b"\0"
            cfa = _base(bytes(place)) if last == DEREF else None
        elif op in (DEF_CFA, DEF_CFA_REGISTER, DEF_CFA_OFFSET):
            cfa = None
        elif op == EXPRESSION:
            at, register = _uleb(code, 1)
            at, size = _uleb(code, at)
            place_of = _base(code[at : at + size])
            saved.pop(register, None)
            saved |= {register: place_of} if place_of else {}
        elif op == REMEMBER:
            kept.append((cfa, dict(saved)))
        elif op == RESTORE_STATE:
            cfa, saved = kept.pop()
    return cfa, saved


def _base(code: bytes) -> tuple[int, int] | None:
    """The register and the distance of DW_OP_breg; None for another expression."""
    if len(code) < 2 or not BREG <= code[0] < BREG + BREGS:
        return None
    end, distance = _sleb(code, 1)
    return (code[0] - BREG, distance) if end == len(code) else None


def size_of_fde(elf: Elf, frame: int) -> int:
    """The number of bytes of code that an FDE describes."""
    return elf.order.integer(_bytes(elf, frame)[12:16])


def _bytes(elf: Elf, address: int) -> bytes:
    """An entry, including its length."""
    import numpy as np

    offset = int(elf.offset_of(np.array([address], np.int64).view(np.uint64))[0])
    if offset < 0:
        raise IndexError(address)
    length = elf.order.integer(elf.data[offset : offset + 4])
    if not 8 <= length < MAX_ENTRY:
        raise IndexError(length)
    return elf.data[offset : offset + 4 + length].tobytes()


def _rows(
    code: bytes, at: int, cfa: tuple[int, int], alignment: int, order: ByteOrder
) -> Iterator[Row]:
    """Yield instructions, except advances and nops."""
    place, saved = 0, list[tuple[int, int]]()
    while place < len(code):
        op = code[place]
        high = op & 0xC0
        kinds = "" if high in (ADVANCE, RESTORE) else "u" if high == OFFSET else OPERANDS[op]
        end = place + 1
        for kind in kinds:
            end = _skip(code, end, kind)
        held = code[place:end]
        if high == ADVANCE:
            at += (op & 0x3F) * alignment
        elif op in ADVANCES:
            at += order.integer(held[1:]) * alignment
        elif op == SET_LOC:
            raise KeyError(op)
        elif op:
            cfa = _cfa(op, held, cfa, saved)
            yield Row(at, held, cfa)
        place = end


def _cfa(
    op: int, held: bytes, cfa: tuple[int, int], saved: list[tuple[int, int]]
) -> tuple[int, int]:
    """The CFA after an instruction; ``saved`` is the stack of remembered ones."""
    if op == DEF_CFA:
        at, register = _uleb(held, 1)
        return register, _uleb(held, at)[1]
    if op == DEF_CFA_REGISTER:
        return _uleb(held, 1)[1], cfa[1]
    if op == DEF_CFA_OFFSET:
        return cfa[0], _uleb(held, 1)[1]
    if op in (0x0F, 0x12, 0x13):  # an expression, or signed offsets
        return NO_CFA
    if op == REMEMBER:
        saved.append(cfa)
    elif op == RESTORE_STATE:
        return saved.pop()
    return cfa


def _skip(code: bytes, at: int, kind: str) -> int:
    """Find the end of an operand."""
    if kind.isdigit():
        return at + int(kind)
    at, value = _uleb(code, at)
    return at + value if kind == "b" else at


def _uleb(code: bytes, at: int) -> tuple[int, int]:
    """Read a ULEB128: its end and its value."""
    value = shift = 0
    while True:
        byte = code[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return at, value


def _sleb(code: bytes, at: int) -> tuple[int, int]:
    """Read an SLEB128: its end and its value."""
    end, value = _uleb(code, at)
    bits = 7 * (end - at)
    return end, value - (value >> (bits - 1) << bits)


def packed(entries: Sequence[Entry], address: int) -> tuple[bytes, list[tuple[int, int]]]:
    """Lay out CIEs and FDEs at link address ``address``; also return (start, FDE) of each."""
    out, rows = bytearray(), []
    for entry in entries:
        cie = address + len(out)
        first = _skip(entry.cfi.head, 0, "u")  # offsets here are in bytes on every architecture
        body = b"\1zR\0" + b"\1" + entry.cfi.head[first:] + b"\1\x1b" + entry.cfi.initial
        order = entry.cfi.order
        out += _entry(order.packed(0, 4) + body, order)
        at = address + len(out)
        rows.append((entry.start, at))
        code, reached = b"\0", 0
        for distance, held in entry.instructions:
            if distance > reached:
                code += b"\4" + order.packed(distance - reached, 4)
                reached = distance
            code += held
        start = (entry.start - (at + 8)) % (1 << 32)
        words = (at + 4 - cie, start, entry.size)
        out += _entry(b"".join(order.packed(word, 4) for word in words) + code, order)
    return bytes(out), rows


def _entry(body: bytes, order: ByteOrder) -> bytes:
    body += bytes(-(len(body) + 4) % 8)  # DW_CFA_nop
    return order.packed(len(body), 4) + body
