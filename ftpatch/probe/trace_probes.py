"""The probes of a trace, as its header has them (struct trace_probe of stubs/runtime/trace.h)."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

from ftpatch.arch import architectures
from ftpatch.arch.registers import REGISTERS
from ftpatch.errors import InputError, UsageError
from ftpatch.probe import Definition, parse_probe
from ftpatch.probe.definition import Source
from ftpatch.probe.steps import MOST, STRING_WORDS
from ftpatch.trace.header import Header

__all__ = ["Probe", "read_probes"]

TOLD = struct.Struct("<4Q4I")
"""0, missed, active, ip | words, flags, text, length."""
AT = 4096
"""Bytes of the header in front of them."""
RETURN, FAULTS, CUT, WAY_SHIFT = 1, 2, 4, 8
WAYS = ("", "pad", "jump", "trap")
LONGEST = 1 << 16
"""Bytes of a definition, at most."""


@dataclass(frozen=True)
class Probe:
    """``ip``: link address; ``words``: of values in an event, ``faults``: the first says which
    could not be read; how often it was ``missed`` (nmissed); ``way``:
    pad, jump or trap; ``tells_cut``: the last byte of a string says whether it goes on."""

    definition: Definition
    ip: int
    words: int
    faults: bool
    missed: int
    way: str
    tells_cut: bool

    @property
    def returns(self) -> bool:
        """True if it is an r probe."""
        return self.definition.kind == "r"

    @property
    def before(self) -> int:
        """Words of an event in front of its values, but for the first."""
        return 2 if self.returns else 0


def read_probes(fd: int, header: Header) -> list[Probe]:
    """All probes of a trace, by their numbers. Raises InputError for corrupt data."""
    names = {arch.machine: arch.name for arch in architectures().values()}
    registers = REGISTERS.get(names.get(header.machine, ""))
    size = header.header_size - AT
    if registers is None:
        raise InputError(header.path, f"probes of machine {header.machine} are not supported")
    if header.probes * TOLD.size > size:
        raise InputError(header.path, f"its header has no room for {header.probes} probes")
    try:
        raw = os.pread(fd, size, AT)
    except OSError as error:
        raise InputError(header.path, f"cannot read: {error.strerror}") from None
    out = []
    for number in range(header.probes):
        _, missed, _, ip, words, flags, at, length = TOLD.unpack_from(raw, number * TOLD.size)
        if length > LONGEST or not AT <= at <= at + length <= header.header_size:
            raise InputError(header.path, f"the definition of probe {number} is not in its header")
        text = raw[at - AT : at - AT + length].decode("utf-8", "backslashreplace")
        try:
            found = parse_probe(text, registers.names, arguments=len(registers.arguments))
        except UsageError as error:
            raise InputError(header.path, f"probe {number}: {error}") from None
        way = WAYS[flags >> WAY_SHIFT] if flags >> WAY_SHIFT < len(WAYS) else ""
        tells_cut = bool(flags & CUT)
        probe = Probe(found, ip, words, bool(flags & FAULTS), missed, way, tells_cut)
        if words != _words(probe) or words > MOST or probe.returns != bool(flags & RETURN):
            raise InputError(header.path, f"probe {number} does not match its definition")
        out.append(probe)
    return out


def _words(probe: Probe) -> int:
    fetches = (one for one in probe.definition.fetches if one.source != Source.COMM)
    return probe.faults + sum(STRING_WORDS if one.type == "string" else 1 for one in fetches)
