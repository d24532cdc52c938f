# SPDX-License-Identifier: MIT
"""The probes in a trace's header (struct trace_probe of stubs/runtime/trace.h)."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ftpatch.arch import name_of_machine, supports
from ftpatch.arch.registers import registers_of
from ftpatch.core.byte_order import ByteOrder
from ftpatch.errors import InputError, UsageError
from ftpatch.layout import constants, structure, unpack
from ftpatch.probe import Definition, parse_probe
from ftpatch.probe.definition import Source
from ftpatch.probe.fetching import MAX_WORDS, STRING_WORDS
from ftpatch.trace.header import Header
from ftpatch.trace.hits import Field, Show

__all__ = ["STRING_ROOM", "Probe", "read_probes", "show_of"]

TOLD = structure("trace_probe").itemsize
AT = constants["TRACE_HEADER"]
"""Size of the header's fixed part, before the probes."""
RETURN, FAULTS, CUT, CALLS = (
    constants[f"PROBE_{name}"] for name in ("RETURN", "FAULTS", "CUT", "CALLS")
)
WAY_SHIFT = constants["PROBE_METHOD"]
WAYS = {constants[f"METHOD_{name.upper()}"]: name for name in ("pad", "jump", "trap", "pun")}
STRING_ROOM = 8 * STRING_WORDS - 1
"""Maximum length of a recorded string (bytes)."""
_SHOWN: dict[str, tuple[Show, int]] = {
    "string": (Show.STRING, STRING_ROOM),
    "symbol": (Show.SYMBOL, 0),
    "f32": (Show.FLOAT, 0),
    "f64": (Show.DOUBLE, 0),
    "u": (Show.UNSIGNED, 0),
    "s": (Show.SIGNED, 0),
    "x": (Show.HEX, 0),
}
"""By fetch type, or its first letter."""
MAX_TEXT = 1 << 16
"""Maximum length of a definition (bytes)."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A recorded probe. ``ip``: link address; ``words`` of values per event; ``faults``: a first
    word tells which reads failed; ``missed``: nmissed; ``way``: pad, jump, pun or trap;
    ``tells_cut``: the last byte of a string tells whether it was truncated; ``order`` of the bytes
    of a string in its words."""

    definition: Definition
    ip: int
    words: int
    faults: bool
    missed: int
    way: str
    tells_cut: bool
    order: ByteOrder

    @property
    def name(self) -> str:
        """Name of its events."""
        return self.definition.event

    @property
    def symbol(self) -> str | None:
        """The symbol it was placed at, if any."""
        return self.definition.symbol

    @property
    def offset(self) -> int:
        """Offset from that symbol in bytes."""
        return self.definition.offset

    @property
    def library(self) -> str:
        """The library it is in, empty for the program."""
        return self.definition.library

    @property
    def fields(self) -> tuple[Field, ...]:
        """Its values in the form reports use."""
        return tuple(
            Field(
                one.name,
                *_shown(one.type),
                one.room,
                one.names,
                other=one.other,
            )
            for one in self.definition.fetches
            if not self.definition.hist
        )

    @property
    def returns(self) -> bool:
        """True if it is an r probe."""
        return self.definition.kind == "r"

    @property
    def before(self) -> int:
        """Words of an event before its values, not counting the first."""
        return 2 if self.returns else 0


def read_probes(fd: int, header: Header) -> list[Probe]:
    """Read all probes of a trace, by number. Raises InputError for corrupt data."""
    name = name_of_machine(header.machine)
    size = header.header_size - AT
    if not supports(name, "registers"):
        raise InputError(header.path, f"probes of machine {header.machine} are not supported")
    registers = registers_of(name)
    if header.probes * TOLD > size:
        raise InputError(header.path, f"its header has no room for {header.probes} probes")
    try:
        raw = os.pread(fd, size, AT)
    except OSError as error:
        raise InputError(header.path, f"cannot read: {error.strerror}") from None
    out = []
    for number in range(header.probes):
        told = unpack("trace_probe", header.order, raw, number * TOLD)
        words, flags, at, length = (told[name] for name in ("words", "flags", "text", "length"))
        if length > MAX_TEXT or not AT <= at <= at + length <= header.header_size:
            raise InputError(header.path, f"the definition of probe {number} is not in its header")
        text = raw[at - AT : at - AT + length].decode("utf-8", "backslashreplace")
        try:
            found = parse_probe(
                text,
                registers.names,
                arguments=len(registers.arguments),
                vectors=registers.vectors,
            )
        except UsageError as error:
            raise InputError(header.path, f"probe {number}: {error}") from None
        probe = Probe(
            definition=found,
            ip=told["ip"],
            words=words,
            faults=bool(flags & FAULTS),
            missed=told["missed"],
            way=WAYS.get(flags >> WAY_SHIFT, ""),
            tells_cut=bool(flags & CUT),
            order=header.order,
        )
        as_told = probe.returns == bool(flags & RETURN) and bool(found.stack) == bool(flags & CALLS)
        if words != _words(probe) or words > MAX_WORDS or not as_told:
            raise InputError(header.path, f"probe {number} does not match its definition")
        out.append(probe)
    return out


def show_of(type: str) -> Show:
    """The form in which values of a type are shown."""
    return _shown(type)[0]


def _shown(type: str) -> tuple[Show, int]:
    return _SHOWN[type if type in _SHOWN else type[0]]


def _words(probe: Probe) -> int:
    if probe.definition.hist:
        return 0
    fetches = (one for one in probe.definition.fetches if one.source != Source.COMM)
    return probe.faults + sum(STRING_WORDS if one.type == "string" else 1 for one in fetches)
