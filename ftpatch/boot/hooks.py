# SPDX-License-Identifier: MIT
"""Hooks: the code of probes behind the boot tracer, and the record that explains their events.

    | mark | tracer | code of the hooks | record |

The record is laid into the kernel's padding as well, so that the patched kernel alone explains a
stream: a magic, a size, and compressed JSON. What was probed is told by the probes' own slice.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.boot import Assembly, TracerCode, has_mark
from ftpatch.arch.kernel_probe import (
    INSTANCE,
    TEXT,
    Aim,
    First,
    Hook,
    KernelProbe,
    Part,
    Value,
    kernel_probe_of,
    lay_hooks,
    readers_of,
)
from ftpatch.arch.kernel_text import kernel_mover_of, kernel_text_of
from ftpatch.arch.move import Immovable
from ftpatch.core.changes import Changes, Kind
from ftpatch.core.columns import addresses
from ftpatch.core.journal import journalled
from ftpatch.errors import InputError, SiteRefused, UsageError
from ftpatch.ftrace.sites import Sites
from ftpatch.image import Image
from ftpatch.inject.probe_methods import JUMP, PAD
from ftpatch.trace.hits import Show

__all__ = [
    "NO_HOOKS",
    "HookCode",
    "Hooked",
    "Hooks",
    "read_hooks",
    "require_journal",
    "require_unprobed",
]

MAGIC = b"FTPHOOKS"
"""Followed by the size of what is compressed, in SIZE bytes, little endian."""
SIZE = 4
HEAD = len(MAGIC) + SIZE
ALIGN = 16
WORDS = 16
"""Bytes of counters before the instances: two words, and room to align."""
FAR = 1 << 20
"""Assumed size of all code while it is found out: more than it can be."""
REACH = 1 << 31
"""Bytes: code reaches what is nearer."""
WIDTH = 8
"""Maximum width of a number (bytes)."""
MAX_RECORD = 1 << 20
"""Maximum size of a record (bytes)."""


@dataclass(frozen=True)
class HookCode:
    """The tracer's ``code`` with that of hooks behind it, the ``entries`` of these (bytes from the
    mark), and the ``record``, empty without hooks."""

    code: bytes
    entries: tuple[int, ...] = ()
    record: bytes = b""

    @property
    def size(self) -> int:
        """Bytes of all of it."""
        return len(self.code) + len(self.record)


@dataclass(frozen=True)
class Hooks:
    """Hooks to lay, and the probes that they belong to: one JSON object each, in the order of the
    hooks' own."""

    hooks: tuple[Hook, ...] = ()
    told: tuple[Mapping[str, Any], ...] = ()

    @property
    def _values(self) -> list[Value]:
        probes = (probe for hook in self.hooks for probe in hook.probes)
        return [value for probe in probes for value in probe.values if value is not None]

    @property
    def spare(self) -> int:
        """Bytes of data that they need."""
        probes = [probe for hook in self.hooks for probe in hook.probes]
        reads = any(value.reads for value in self._values)
        if not reads and not any(probe.returns for probe in probes):
            return 0
        return WORDS + INSTANCE * sum(probe.instances for probe in probes)

    def at(self, sites: Sites) -> NDArray[np.int64]:
        """The number of each site's hook, int64[n]; -1 if it has none."""
        number = np.full(len(sites), -1, np.int64)
        for index, hook in enumerate(self.hooks):
            number[sites.ip == np.uint64(hook.ip)] = index
        return number

    def jumps(self, sites: Sites, entries: Sequence[int]) -> list[Changes]:
        """Jumps to the hooks' ``entries``, link addresses, for those that no site calls."""
        elf, out = sites.image.elf, list[Changes]()
        if not any(hook.displaced for hook in self.hooks):
            return out  # an architecture without probes has a boot tracer nevertheless
        mover, fill = kernel_mover_of(sites.arch.name), kernel_text_of(sites.arch.name).fill
        for hook, to in zip(self.hooks, entries, strict=True):
            if hook.displaced:
                jump = mover.jump(hook.ip, to).ljust(len(hook.displaced), fill)
                old, new = (np.frombuffer(one, np.uint8)[None] for one in (hook.displaced, jump))
                offset = elf.offset_of(addresses(hook.ip), executable=True)
                out.append(Changes.of(Kind.CODE, offset, old, new, addresses(hook.ip)))
        return out

    def lay(self, sites: Sites, laid: TracerCode, at: int, spare: int) -> HookCode:
        """Build the code for a mark at the address ``at`` and data at ``spare``. Raises UsageError
        for an address that is out of reach, of a value or of displaced instructions."""
        if not self.hooks:
            return HookCode(laid.code)
        names = {name for hook in self.hooks for some in readers_of(hook) for name in some}
        found = {name: sites.image.symbols.find(name) for name in sorted(names)}
        aim = Aim(
            at=at,
            entry=laid.entry,
            words=spare - at if spare else 0,
            instances=spare + WORDS - at if spare else 0,
            callees={name: address - at for name, address in found.items() if address},
            span=FAR,
        )
        for value in self._values:
            if value.first is First.ADDRESS and abs(aim.distance(value.number)) >= REACH:
                reason = f"@{value.number:#x} is too far from the kernel"
                raise UsageError(sites.image.path, reason, "use --print-events")
        code = kernel_probe_of(sites.arch.name)
        try:
            whole, entries, places = self._built(sites.arch.name, code, laid, aim)
            whole, entries, places = self._built(
                sites.arch.name, code, laid, replace(aim, span=len(whole))
            )
        except Immovable as error:
            raise UsageError(sites.image.path, f"no jump: {error}", "probe another place") from None
        pads = [entry for hook, entry in zip(self.hooks, entries, strict=True) for _ in hook.probes]
        probes = [{**one, "pad": pad} for one, pad in zip(self.told, pads, strict=True)]
        told = json.dumps({"probes": probes, "places": places}, separators=(",", ":"))
        record = zlib.compress(told.encode(), 9)
        return HookCode(whole, entries, MAGIC + len(record).to_bytes(SIZE, "little") + record)

    def _built(
        self, arch: str, code: KernelProbe, laid: TracerCode, aim: Aim
    ) -> tuple[bytes, tuple[int, ...], tuple[tuple[int, int, int, Part], ...]]:
        out = Assembly(arch, laid.code + bytes(-len(laid.code) % ALIGN))
        made = lay_hooks(out, code, self.hooks, aim)
        return bytes(out.code) + bytes(-out.here % ALIGN), made.entries, made.places


NO_HOOKS = Hooks()


@dataclass(frozen=True, kw_only=True)
class Hooked:
    """The hooks of a patched kernel. ``probes``: what was told of each, and the ``pad`` that its
    site calls or jumps to, in bytes from the mark; columns, one row for each place that sends:
    ``place`` int64[m], ascending, ``probe``, ``value`` and ``part`` int64[m]."""

    probes: tuple[Mapping[str, Any], ...]
    place: NDArray[np.int64]
    probe: NDArray[np.int64]
    value: NDArray[np.int64]
    part: NDArray[np.int64]


def read_hooks(image: Image) -> Hooked | None:
    """Read the record of a patched kernel; None if it has none. Raises InputError for one that
    contradicts itself."""
    laid = journalled(image.blocks, Kind.PADDING)
    for row in range(len(laid)):
        if not laid.new[row, : len(MAGIC)].tobytes().startswith(MAGIC):
            continue
        start, end = laid.offset[row:], (laid.offset + laid.width)[row:]
        gaps = np.flatnonzero(start[1:] != end[:-1])  # it was laid in pieces
        held = image.data[start[0] : end[gaps[0] if len(gaps) else -1]].tobytes()
        try:
            return _parsed(json.loads(_unpacked(held)))
        except (
            zlib.error,
            ValueError,
            KeyError,
            TypeError,
            IndexError,
            OverflowError,
            RecursionError,
        ):
            raise InputError(image.path, "the record of its probes is damaged") from None
    return None


def require_journal(image: Image) -> None:
    """Raise InputError for a kernel with a tracer in its text of which no journal tells."""
    if image.blocks:
        return
    elf = image.elf
    start = elf.offset_of(elf.text[:, 0], executable=True)
    rows = zip(start.tolist(), elf.text[:, 1].tolist(), strict=True)
    if any(has_mark(elf.data[at : at + size].tobytes()) for at, size in rows if at >= 0):
        reason = "has a boot tracer, but no journal: that is damaged or cut off, or was stripped"
        raise InputError(image.path, reason, "start from the original")


def _unpacked(held: bytes) -> bytes:
    """The JSON of a record. Raises ValueError or zlib.error for one of another size."""
    size = int.from_bytes(held[len(MAGIC) : HEAD], "little")
    if not held.startswith(MAGIC) or size > len(held) - HEAD:
        raise ValueError
    unpacker = zlib.decompressobj()
    told = unpacker.decompress(held[HEAD : HEAD + size], MAX_RECORD)
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError
    return told


def require_unprobed(sites: Sites, mask: NDArray[np.bool_]) -> None:
    """Raise SiteRefused if a site in ``mask``, bool[n], calls a probe of a patched kernel: the
    record would go on telling of it. Raises InputError for a damaged one."""
    hooked = read_hooks(sites.image)
    held = {one["site"]: one["name"] for one in hooked.probes} if hooked else {}
    ip = sites.ip[mask & np.isin(sites.ip, addresses(*held))]
    if len(ip):
        (place,) = sites.image.kallsyms.places(ip[:1])
        more = f" (and {len(ip) - 1} more)" * (len(ip) > 1)
        reason = f"{place or hex(int(ip[0]))}: has the probe {held[int(ip[0])]}{more}"
        raise SiteRefused(sites.image.path, reason, "run `ftpatch undo` first")


def _parsed(held: dict[str, Any]) -> Hooked:
    """Check and convert. Raises ValueError or its like."""
    probes = tuple(_checked(probe) for probe in held["probes"])
    rows = np.array(held["places"], np.int64).reshape(-1, 4)
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    place, probe, value, part = rows.T
    fields = np.array([len(one["fields"]) for one in probes] or [0])
    if ((probe < 0) | (probe >= len(probes)) | (value < 0) | (part < 0)).any():
        raise ValueError
    if (part > max(Part)).any() or (value >= np.maximum(fields[probe], 1)).any():
        raise ValueError
    return Hooked(probes=probes, place=place, probe=probe, value=value, part=part)


def _checked(probe: dict[str, Any]) -> Mapping[str, Any]:
    """Check the record of a probe. Raises ValueError or its like."""
    texts = [probe["name"], probe["text"], probe["symbol"] or ""]
    for name, show, room, width, known, linked in probe["fields"]:
        Show(show)
        if known is not None:
            int(known)
        good = (
            type(known) in (str, type(None))
            and type(room) is type(width) is int
            and type(linked) is bool
        )
        if not good or not 0 <= room < TEXT or not 0 <= width <= WIDTH:
            raise ValueError
        texts.append(name)
    way, offset = probe.get("way", PAD.name), probe.get("offset", 0)  # of older versions
    numbers = [probe["ip"], probe["site"], probe["pad"], offset]
    if way not in (PAD.name, JUMP.name):
        raise ValueError
    if not all(type(one) is str for one in texts) or type(probe["returns"]) is not bool:
        raise ValueError
    if not all(type(one) is int and 0 <= one < 1 << 64 for one in numbers):
        raise ValueError
    return {**probe, "way": way, "offset": offset}
