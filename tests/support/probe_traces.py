# SPDX-License-Identifier: MIT
"""A writer of traces of probes for tests, as stubs/runtime/trace.h draws them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.trace_writer import BASE, FUNCTIONS, STRIDE, Thread, TraceFile

__all__ = ["BIAS", "HIT", "PROBES", "RETURNED", "ProbeFile", "Told", "ip_of", "string"]

HIT, RETURNED, PROBES = 1, 2, 5
BIAS = 0x5555_0000_0000
TOLD = struct.Struct("<4Q4I")
HEADER = 4096


def ip_of(name: str) -> int:
    """The link address of a function of trace_writer.program()."""
    return BASE + FUNCTIONS.index(name) * STRIDE


def string(text: bytes) -> tuple[int, ...]:
    """The eight words of a string, as the runtime cuts it."""
    return struct.unpack("<8Q", text[:63].ljust(64, b"\0"))


@dataclass(frozen=True)
class Told:
    """A probe in a header: its definition, link address, words of values and what it missed;
    ``faults`` as in read_probes()."""

    text: str
    ip: int
    words: int = 0
    missed: int = 0
    faults: bool = False
    way: int = 2

    @property
    def flags(self) -> int:
        """Its flags in the file."""
        return (self.text[0] == "r") | self.faults << 1 | self.way << 8


@dataclass
class ProbeFile:
    """A whole file; ``header`` overrides fields as in TraceFile."""

    probes: Sequence[Told]
    threads: list[Thread] = field(default_factory=list)
    header: dict[str, int | bytes] = field(default_factory=dict)
    chunk_size: int = 4096

    def build(self) -> bytes:
        """The bytes of the file."""
        texts, begin = b"", HEADER + len(self.probes) * TOLD.size
        table = b""
        for one in self.probes:
            raw = one.text.encode()
            at = begin + len(texts)
            table += TOLD.pack(0, one.missed, 0, one.ip, one.words, one.flags, at, len(raw))
            texts += raw
        size = (begin + len(texts) + 7) // 8 * 8
        header: dict[str, int | bytes] = {"tracer": PROBES, **self.header}
        file = TraceFile(self.threads, self.chunk_size, size, header)
        out = bytearray(file.build())
        struct.pack_into("<I", out, 232, len(self.probes))
        out[HEADER : HEADER + len(table) + len(texts)] = table + texts
        return bytes(out)

    def write(self, path: Path) -> Path:
        """The file, at ``path``."""
        path.write_bytes(self.build())
        return path
