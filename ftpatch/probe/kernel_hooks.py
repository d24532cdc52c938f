# SPDX-License-Identifier: MIT
"""Definitions as hooks of a kernel on disk: their functions' sites, or jumps, and what code fetches
there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ftpatch.arch.kernel_probe import (
    TEXT,
    First,
    Hook,
    HookProbe,
    KernelProbe,
    Read,
    Value,
    kernel_probe_of,
    readers_of,
)
from ftpatch.arch.registers import Registers, registers_of
from ftpatch.errors import Refused, UsageError
from ftpatch.ftrace.sites import Sites
from ftpatch.inject.kernel_jumps import KernelJumps
from ftpatch.inject.probe_methods import JUMP, PAD
from ftpatch.names.functions import read_functions
from ftpatch.names.named_symbols import DATA, Named
from ftpatch.names.suggest import meant
from ftpatch.probe.definition import TYPES, Definition, Fetch, Source
from ftpatch.probe.fetches import USER_STRING
from ftpatch.probe.text import definition_text
from ftpatch.probe.trace_probes import show_of
from ftpatch.trace.hits import Show

__all__ = ["MAXACTIVE", "kernel_hooks"]

MAXACTIVE = 10
"""Default instances of an r probe: those of a kretprobe with few processors."""
INTO = 16
"""Maximum distance from a function's start to its site, behind landing pads (bytes)."""
EVENTS = "use --print-events and the running kernel"


def kernel_hooks(
    sites: Sites, definitions: Sequence[Definition], refused: Refused
) -> tuple[list[Hook], list[Mapping[str, Any]]]:
    """Translate definitions, leaving out what is ``refused``; the second are the records of the
    hooks' probes: name, text, symbol, offset, ip (the probed address), site, way (the method's
    name), returns, and fields, each of name, Show, room, width, the value where that is known
    before, and whether it is a link address. Raises UsageError if the architecture has no such
    probes."""
    image, arch = sites.image, sites.arch.name
    code, registers = kernel_probe_of(arch), registers_of(arch)
    known = _Kernel(sites)
    wanted = []
    for one in definitions:
        with refused.told(image.path):
            wanted.append((one, known.address(one)))
    later = np.unique(np.array([address for _, address in wanted], np.uint64))
    by_ip: dict[int, list[_Placed]] = {}
    for one, address in wanted:
        with refused.told(image.path):
            row = int(np.searchsorted(later, np.uint64(address), side="right"))
            place = known.place(one, address, int(later[row]) if row < len(later) else None)
            own = code.jumped if place.displaced else code
            values = tuple(known.value(fetch, one, place, own, registers) for fetch in one.fetches)
            instances = (one.maxactive or MAXACTIVE) if one.kind == "r" else 0
            probe = HookProbe(values, one.kind == "r", instances)
            known.require_readers(one, probe)
            by_ip.setdefault(place.site, []).append(_Placed(one, probe, place))
    known.drop_readers(by_ip, refused)
    hooks, told = list[Hook](), list[Mapping[str, Any]]()
    for ip, probes in sorted(by_ip.items()):
        probes.sort(
            key=lambda placed: placed.definition.kind
        )  # p probes see the real return address
        place = probes[0].place
        hooks.append(
            Hook(ip, tuple(one.probe for one in probes), place.displaced, inside=place.inside)
        )
        told += [_record(one) for one in probes]
    return hooks, told


@dataclass(frozen=True)
class _Place:
    """A probed address (``ip``) in the function at ``start``, the ``site`` of the call or the jump
    there, and the instructions that a jump ``displaced``."""

    ip: int
    start: int
    site: int
    displaced: bytes = b""

    @property
    def inside(self) -> bool:
        """True in the middle of the function."""
        return self.ip != self.start


@dataclass(frozen=True)
class _Placed:
    """A probe and its place."""

    definition: Definition
    probe: HookProbe
    place: _Place


class _Kernel:
    """A kernel's functions and variables."""

    def __init__(self, sites: Sites) -> None:
        self._sites, self._image = sites, sites.image
        self._jumps = KernelJumps(sites, read_functions(sites.image))
        self._ip = np.sort(sites.ip)

    def address(self, definition: Definition) -> int:
        """The address of a probe. Raises UsageError."""
        if definition.library:
            reason = f"{definition.name}: {definition.library} is not in this image"
            raise self._error(reason, "name a function of the kernel")
        address = definition.address or 0
        if definition.symbol is not None:
            address = self._jumps.functions.names.address(definition.symbol)
        return (address + definition.offset) % (1 << 64)

    def place(self, definition: Definition, address: int, until: int | None) -> _Place:
        """The place of a probe at an address; ``until``: address of the next probe. Raises
        UsageError."""
        name, around = definition.name, self._jumps.functions.around(address)
        start = around[0] if around else address
        if definition.symbol is not None and not definition.offset:
            start = address
        if start == address:
            at = int(np.searchsorted(self._ip, np.uint64(address)))
            ip = int(self._ip[at]) if at < len(self._ip) else 0
            if 0 <= ip - address <= INTO and (around is None or ip < around[1]):
                return _Place(address, start, ip)
        elif definition.kind == "r":
            reason = f"{name}: retprobe address must be a function entry"
            raise self._error(reason, f"use {start:#x}")
        try:
            jump = self._jumps.at(address, until)
        except UsageError as error:
            raise self._error(f"{name}: {error.reason}", error.hint) from None
        return _Place(address, start, jump.site, jump.displaced)

    def value(
        self,
        fetch: Fetch,
        definition: Definition,
        place: _Place,
        code: KernelProbe,
        registers: Registers,
    ) -> Value | None:
        """Translate a fetch; None if its value is known before. Raises UsageError for what cannot
        be fetched."""
        first, number, before = First.REGISTER, 0, tuple[Read, ...]()
        match fetch.source:
            case Source.COMM:
                raise self._error(f"{definition.name}: no $comm in a kernel on disk", EVENTS)
            case Source.REGISTER if fetch.text in registers.pc:
                first, number = First.ADDRESS, place.site
            case Source.REGISTER:
                number = registers.numbers[fetch.text]
                if number not in code.registers:
                    reason = f"{definition.name}: %{fetch.text} is not live at a site"
                    raise self._error(reason, "fetch $argN")
            case Source.ARGUMENT if place.inside:
                reason = f"{definition.name}: $argN can be used only on function entry"
                raise self._error(reason, "fetch %REG or $stackN")
            case Source.STACK:
                first = First.STACK
            case Source.STACK_WORD:
                first, before = First.STACK, (Read(8 * fetch.value, 8, False),)
            case Source.ARGUMENT if fetch.value > len(registers.arguments):
                words = fetch.value - len(registers.arguments) - 1 + registers.behind
                first, before = First.STACK, (Read(8 * words, 8, False),)
            case Source.ARGUMENT:
                number = registers.arguments[fetch.value - 1]
            case Source.RETVAL:
                number = registers.result
            case Source.SYMBOL:
                first, number = First.ADDRESS, self._data(fetch.text) + fetch.value
            case Source.ADDRESS:
                first, number = First.ADDRESS, fetch.value
            case Source.IMMEDIATE if fetch.reads:
                raise self._error(f"{definition.name}: a number is no address", "use @ADDRESS")
            case Source.IMMEDIATE:
                return None
        kind, last = _kind(fetch), len(fetch.reads) - 1
        width, user = TYPES[kind], fetch.user | ({last} if fetch.type != kind else set())
        reads = tuple(
            Read(offset, width if index == last else 8, index in user)
            for index, offset in enumerate(fetch.reads)
        )
        linked = fetch.type == "symbol"
        return Value(first, number % (1 << 64), before + reads, width, linked)

    def require_readers(self, definition: Definition, probe: HookProbe) -> None:
        """Raise UsageError if the kernel lacks a function to read memory with."""
        find = self._image.symbols.find
        if not all(any(map(find, some)) for some in readers_of(Hook(0, (probe,)))):
            reason = f"{definition.name}: no function of this kernel reads memory without faults"
            raise self._error(reason, EVENTS)

    def drop_readers(self, by_ip: dict[int, list[_Placed]], refused: Refused) -> None:
        """Refuse probes of the functions that probes read memory with: each read would be a hit."""
        every = [one for probes in by_ip.values() for one in probes]
        some = {names for one in every for names in readers_of(Hook(0, (one.probe,)))}
        names = {name for each in some for name in each}
        found = {self._image.symbols.find(name): name for name in sorted(names)}
        for ip in [at for at, probes in by_ip.items() if probes[0].place.start in found]:
            for one in by_ip.pop(ip):
                with refused.told(self._image.path):
                    reader = found[one.place.start]
                    reason = f"{one.definition.name}: probes read memory with {reader}"
                    raise self._error(reason, "probe it alone, without memory")

    def _data(self, name: str) -> int:
        found = self._image.symbols.find(name)
        if found is None:
            named = Named(self._image.symbols, DATA)
            hint = meant(named.find(name) or named.like(name), "see `nm`")
            raise self._error(f"@{name}: no such symbol", hint)
        return found

    def _error(self, reason: str, hint: str) -> UsageError:
        return UsageError(self._image.path, reason, hint)


def _kind(fetch: Fetch) -> str:
    """The type; that of a string in user memory is a string."""
    return fetch.type.removeprefix("u") if fetch.type == USER_STRING else fetch.type


def _record(placed: _Placed) -> dict[str, Any]:
    """What a stream's reader is told."""
    fields, definition, place = [], placed.definition, placed.place
    for fetch, value in zip(definition.fetches, placed.probe.values, strict=True):
        kind = _kind(fetch)
        show = show_of(kind)
        room = TEXT - 1 if show is Show.STRING else 0
        constant = None if value is not None else str(fetch.value)
        linked = value is not None and value.linked
        fields.append([fetch.name, show.value, room, TYPES[kind], constant, linked])
    return {
        "name": definition.name,
        "text": definition_text(definition),
        "symbol": definition.symbol,
        "offset": definition.offset,
        "ip": place.ip,
        "site": place.site,
        "way": (JUMP if place.displaced else PAD).name,
        "returns": definition.kind == "r",
        "fields": fields,
    }
