# SPDX-License-Identifier: MIT
"""Places of values: where debug information says they are, and how they are read from there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ftpatch.core.byte_order import LITTLE, ByteOrder

__all__ = [
    "Constant",
    "InMemory",
    "InRegisters",
    "Machine",
    "NoValueError",
    "Place",
    "Scattered",
    "Word",
    "place_of",
]

MAX_CONSTANT = 8
"""Bytes."""
READS = 12
"""Maximum number of reads of one value."""
MAX_PIECES = 64
"""Of one value."""
OFFSETS = range(-(1 << 31), 1 << 31)
ENTRY_VALUES = {"DW_OP_entry_value", "DW_OP_GNU_entry_value"}
ELSEWHERE = {
    "DW_OP_form_tls_address": "is thread-local",
    "DW_OP_GNU_push_tls_address": "is thread-local",
    "DW_OP_implicit_value": "is a constant of more than a word",
    "DW_OP_implicit_pointer": "was optimised away",
    "DW_OP_GNU_implicit_pointer": "was optimised away",
    "DW_OP_stack_value": "is computed there",
}


class NoValueError(Exception):
    """A value cannot be read: the ``reason``, a clause of which it is the subject; ``hint``."""

    def __init__(self, reason: str, hint: str = "") -> None:
        self.reason, self.hint = reason, hint
        super().__init__(reason)


@dataclass(frozen=True, kw_only=True)
class Word:
    """A register's contents (``start``: its name) or a number; or a word in memory: each of
    ``reads`` adds its offset (bytes), and loads from there. ``upper``: the register that has the
    second word of a value of two."""

    start: str | int
    reads: tuple[int, ...] = ()
    upper: str = ""


@dataclass(frozen=True, kw_only=True)
class InRegisters:
    """A value in registers, ``width`` bytes in each; None for a part that is in none that probes
    save. ``offset``: where in it a part begins. ``big``: its first byte is the highest one, and its
    last one the lowest of a register; ``size`` of the whole value then, 0: that of a register."""

    names: Sequence[str | None]
    width: int
    offset: int = 0
    big: bool = False
    size: int = 0

    def part(self, offset: int) -> InRegisters:
        """A part that begins ``offset`` bytes further."""
        return replace(self, offset=self.offset + offset)

    def word(self, size: int) -> Word:
        """Read ``size`` bytes of it. Raises NoValueError."""
        number, rest = divmod(self.offset, self.width)
        if self.big:
            end = self.offset + size
            rest = 0 if end == (self.size or self.width) else end % self.width
            rest = rest or self.offset // self.width != (end - 1) // self.width
        name, upper = (
            [*self.names[number : number + 2], None, None][:2] if number >= 0 else [None] * 2
        )
        if name is None:
            raise NoValueError("is in no register that probes read")
        if rest or size > MAX_CONSTANT or (size > self.width and upper is None):
            raise NoValueError("is a part of a register, which cannot be fetched")
        return Word(start=name, upper=(upper or "") if size > self.width else "")

    def pointed(self) -> InMemory:
        """The memory that it points to. Raises NoValueError."""
        return InMemory(start=self.word(self.width))


@dataclass(frozen=True, kw_only=True)
class InMemory:
    """A value in memory, ``offset`` bytes behind where the word ``start`` points to."""

    start: Word
    offset: int = 0

    def part(self, offset: int) -> InMemory:
        """A part that begins ``offset`` bytes further."""
        return replace(self, offset=self.offset + offset)

    def word(self, size: int) -> Word:
        """Read ``size`` bytes of it. Raises NoValueError."""
        start = self.start
        if (address := self.address) is not None:
            if not 0 <= address < 1 << 64:
                raise NoValueError("is outside of memory")
            return Word(start=address, reads=(0,))
        if self.offset not in OFFSETS:
            raise NoValueError("is too far away")
        if len(start.reads) >= READS:
            raise NoValueError("takes too many reads", f"at most {READS}")
        return replace(start, reads=(*start.reads, self.offset))

    @property
    def address(self) -> int | None:
        """Its link address; None if that is known only at run time."""
        start = self.start
        return (
            start.start + self.offset if isinstance(start.start, int) and not start.reads else None
        )

    def pointed(self) -> InMemory:
        """The memory that it points to. Raises NoValueError."""
        return InMemory(start=self.word(0))


@dataclass(frozen=True, kw_only=True)
class Constant:
    """A value that is known without the program's memory."""

    value: int

    def part(self, offset: int) -> Constant:
        """Only the whole. Raises NoValueError."""
        if offset:
            raise NoValueError("was optimised away")
        return self

    def word(self, size: int) -> Word:
        """The constant."""
        return Word(start=self.value)

    def pointed(self) -> InMemory:
        """The memory at that address."""
        return InMemory(start=Word(start=self.value % (1 << 64)))


@dataclass(frozen=True, kw_only=True)
class Scattered:
    """A value of which each part is elsewhere. ``parts``: how many bytes of it from an offset on
    are the low ones of a word; ``width``: bytes of an address; ``offset``: where in it a part
    begins. ``big``: the first byte of each is its highest one."""

    parts: Mapping[int, tuple[int, Word]]
    width: int
    offset: int = 0
    big: bool = False

    def part(self, offset: int) -> Scattered:
        """A part that begins ``offset`` bytes further."""
        return replace(self, offset=self.offset + offset)

    def word(self, size: int) -> Word:
        """Read ``size`` bytes of it. Raises NoValueError."""
        at = self.offset
        held, word = self.parts.get(at, (0, None))
        if word is not None and (size == held if self.big else size <= held):
            return word
        second = self.parts.get(at + held, (0, None))
        if (
            word is not None
            and not self.big
            and held == self.width == second[0]
            and size == 2 * held
        ):
            whole = _joint(word, second[1], held)
            if whole is not None:
                return whole
        if any(one < at + size and at < one + room for one, (room, _) in self.parts.items()):
            raise NoValueError("is a part of a register, which cannot be fetched")
        raise NoValueError("is in no register that probes read")

    def covers(self, size: int) -> bool:
        """Test whether each of the first bytes is somewhere."""
        at = 0
        while at < size:
            held, _ = self.parts.get(self.offset + at, (0, None))
            if not held:
                return False
            at += held
        return True

    def pointed(self) -> InMemory:
        """The memory that it points to. Raises NoValueError."""
        return InMemory(start=self.word(self.width))


Place = InRegisters | InMemory | Constant | Scattered


def _joint(lower: Word, upper: Word | None, size: int) -> Word | None:
    """A value of two words of so many bytes; None if it takes several steps to read."""
    if upper is None:
        return None
    if lower.reads:
        *base, first = lower.reads
        return lower if upper == replace(lower, reads=(*base, first + size)) else None
    if not upper.reads and isinstance(lower.start, str) and isinstance(upper.start, str):
        return replace(lower, upper=upper.start)
    bits = 8 * size
    if upper == Word(start=0) and isinstance(lower.start, str):
        return lower
    if isinstance(lower.start, int) and isinstance(upper.start, int) and not upper.reads:
        return Word(start=lower.start % (1 << bits) | upper.start % (1 << bits) << bits)
    return None


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine that locations refer to: ``names`` of registers by DWARF number, the ``width`` of
    a value in one and of an address, ``word`` (bytes), what is so many bytes from the ``frame``'s
    base, an ``address`` by its index; ``whole``: registers by their lower and their upper half; the
    ``order`` of the bytes of a word."""

    names: Mapping[int, str]
    width: Callable[[str], int]
    frame: Callable[[int], Place]
    address: Callable[[int], int]
    word: int
    whole: Mapping[tuple[str, str], str]
    order: ByteOrder = LITTLE

    def held(self, name: str) -> InRegisters:
        """A value in a register."""
        return InRegisters(names=[name], width=self.width(name), big=self.order.big)


def place_of(operations: Sequence[Any], context: Machine, *, entry: bool) -> Place:
    """The place that a location expression tells (DWARF 5, section 2.6), as pyelftools parses it.
    ``entry``: it is told of a function's entry. Raises NoValueError."""
    names = context.names
    if any(one.op_name in ("DW_OP_piece", "DW_OP_bit_piece") for one in operations):
        return _pieces(operations, context)
    words = [one.op_name for one in operations]
    if not words:
        raise NoValueError("was optimised away")
    first, rest = operations[0], list(operations[1:])
    is_value = words[-1] == "DW_OP_stack_value"
    if words[0] in ENTRY_VALUES:
        inner = first.args[0] if first.args else []
        told = len(inner) == 1 and _register(inner[0], names)
        if not entry or not told:
            raise NoValueError("is not kept up to there")
        if words[1:] == ["DW_OP_stack_value"]:
            return context.held(told)
        at: Place = InMemory(start=Word(start=told))
    elif (register := _register(first, names)) and not rest:
        return context.held(register)
    elif words[0] == "DW_OP_fbreg":
        at = context.frame(first.args[0])
    elif words[0].startswith("DW_OP_breg") and (narrow := _narrowed(operations, entry=entry)):
        parts = {0: (narrow, _based(first, names).start)}
        return Scattered(parts=parts, width=context.word, big=context.order.big)
    elif words[0].startswith("DW_OP_breg"):
        at = _based(first, names)
    elif words[0] in ("DW_OP_addr", "DW_OP_addrx", "DW_OP_GNU_addr_index"):
        where = first.args[0] if words[0] == "DW_OP_addr" else context.address(first.args[0])
        at = InMemory(start=Word(start=where))
    elif words[1:] == ["DW_OP_stack_value"] and (pushed := _constant(first)) is not None:
        return Constant(value=pushed)
    elif words == ["DW_OP_implicit_value"] and len(first.args[0]) <= MAX_CONSTANT:  # a float
        return Constant(value=context.order.integer(bytes(first.args[0])))
    else:
        raise _unknown(words)
    for one in rest[: len(rest) - is_value]:
        if one.op_name == "DW_OP_plus_uconst":
            at = at.part(one.args[0])
        elif one.op_name == "DW_OP_deref":
            at = at.pointed()
        else:
            raise _unknown(words)
    if not is_value:
        return at
    if not isinstance(at, InMemory) or at.offset:
        raise NoValueError("is computed there")
    if isinstance(at.start.start, str) and not at.start.reads:
        return context.held(at.start.start)
    raise NoValueError("is computed there")


def _pieces(operations: Sequence[Any], context: Machine) -> Scattered:
    """What gcc and clang split up, by the parts of it that are told."""
    parts: dict[int, tuple[int, Word]] = {}
    before: list[Any] = []
    at = 0
    for one in operations:
        if one.op_name == "DW_OP_bit_piece":
            raise NoValueError("is split up there")
        if one.op_name != "DW_OP_piece":
            before.append(one)
            continue
        size = one.args[0]
        if size <= MAX_CONSTANT and (word := _piece(before, context, size)) is not None:
            parts[at] = size, word
        at, before = at + size, []
    if len(parts) > MAX_PIECES or not parts:
        raise NoValueError("is split up there" if parts else "is in no register that probes read")
    joined = _joined(parts, context)
    return Scattered(parts=joined, width=context.word, big=context.order.big)


def _joined(parts: dict[int, tuple[int, Word]], context: Machine) -> dict[int, tuple[int, Word]]:
    """The pieces, with those that are the halves of one register together."""
    out = dict(parts)
    for at, (size, word) in parts.items():
        behind = out.get(at + size)
        name = behind and context.whole.get((str(word.start), str(behind[1].start)))
        if behind and name and not word.reads and not behind[1].reads:
            out[at] = size + behind[0], Word(start=name)
            del out[at + size]
    return out


def _piece(operations: Sequence[Any], context: Machine, size: int) -> Word | None:
    """What a piece of so many bytes is, in a register, in memory or as a number; None if it is
    anything else."""
    words = [one.op_name for one in operations]
    if len(words) == 1 and words[0].startswith("DW_OP_reg"):
        name = context.names.get(_number_in(operations[0]))
        return Word(start=name) if name and size <= context.width(name) else None
    if len(words) == 1 and words[0].startswith(("DW_OP_fbreg", "DW_OP_breg")):
        try:
            return place_of(operations, context, entry=False).word(size)
        except NoValueError:
            return None
    if words[1:] == ["DW_OP_stack_value"] and (pushed := _constant(operations[0])) is not None:
        return Word(start=pushed)
    return None


def _constant(one: Any) -> int | None:  # noqa: ANN401 - of pyelftools
    """The number that an operation pushes."""
    if not one.op_name.startswith(("DW_OP_lit", "DW_OP_const")):
        return None
    return int(one.args[0] if one.args else one.op_name.removeprefix("DW_OP_lit"))


def _narrowed(operations: Sequence[Any], *, entry: bool) -> int:
    """The bytes of a value that is the low part of a register; 0 for anything else. Of a bool
    (``& 1``) callers pass a byte, but there may be more in the register later."""
    inner = operations[1:-1]
    whole = operations[-1].op_name == "DW_OP_stack_value" and not operations[0].args[-1]
    if not whole or not inner or len(inner) % 2:
        return 0
    masks = [_constant(one) for one in inner[::2]]
    if any(one.op_name != "DW_OP_and" for one in inner[1::2]):
        return 0
    sizes = {(1 << 8 * size) - 1: size for size in (1, 2, 4, 8)} | {1: 1 if entry else 0}
    return min(sizes.get(mask or 0, 0) for mask in masks)


def _register(one: Any, names: Mapping[int, str]) -> str | None:  # noqa: ANN401 - of pyelftools
    """The register that an operation names. Raises NoValueError for one that is not saved."""
    return _named(_number_in(one), names) if one.op_name.startswith("DW_OP_reg") else None


def _number_in(one: Any) -> int:  # noqa: ANN401
    """DWARF's number of the register that DW_OP_regN or DW_OP_regx names."""
    return int(one.args[0] if one.args else one.op_name.removeprefix("DW_OP_reg"))


def _named(number: int, names: Mapping[int, str]) -> str:
    if number not in names:
        raise NoValueError("is in a register that probes do not read")
    return names[number]


def _based(one: Any, names: Mapping[int, str]) -> InMemory:  # noqa: ANN401
    """What is so many bytes from where a register points."""
    if one.op_name == "DW_OP_bregx":
        number, offset = one.args
    else:
        number, (offset,) = int(one.op_name.removeprefix("DW_OP_breg")), one.args
    return InMemory(start=Word(start=_named(number, names)), offset=offset)


def _unknown(words: Sequence[str]) -> NoValueError:
    told = next((ELSEWHERE[word] for word in reversed(words) if word in ELSEWHERE), None)
    return NoValueError(told or f"is where no probe can fetch it ({words[-1]})")
