# SPDX-License-Identifier: MIT
"""Definitions as hooks of a kernel on disk: their functions' sites, and what code fetches there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    hooks' probes: name, text, symbol, ip (the function's entry), site, returns, and fields, each of
    name, Show, room, width, the value where that is known before, and whether it is a link
    address. Raises UsageError if the architecture has no such probes."""
    image, arch = sites.image, sites.arch.name
    code, registers = kernel_probe_of(arch), registers_of(arch)
    known = _Kernel(sites)
    by_ip: dict[int, list[tuple[Definition, HookProbe, int]]] = {}
    for one in definitions:
        with refused.told(image.path):
            entry, ip = known.site(one)
            values = tuple(known.value(fetch, one, ip, code, registers) for fetch in one.fetches)
            instances = (one.maxactive or MAXACTIVE) if one.kind == "r" else 0
            probe = HookProbe(values, one.kind == "r", instances)
            known.require_readers(one, probe)
            by_ip.setdefault(ip, []).append((one, probe, entry))
    known.drop_readers(by_ip, refused)
    hooks, told = list[Hook](), list[Mapping[str, Any]]()
    for ip, probes in sorted(by_ip.items()):
        probes.sort(key=lambda pair: pair[0].kind)  # p probes see the real return address
        hooks.append(Hook(ip, tuple(probe for _, probe, _ in probes)))
        told += [_record(one, probe, entry, ip) for one, probe, entry in probes]
    return hooks, told


class _Kernel:
    """A kernel's functions and variables."""

    def __init__(self, sites: Sites) -> None:
        self._sites, self._image = sites, sites.image
        self._functions = read_functions(sites.image)
        self._ip = np.sort(sites.ip)

    def site(self, definition: Definition) -> tuple[int, int]:
        """Addresses of a definition's function and of its site. Raises UsageError."""
        name = definition.name
        if definition.library:
            raise self._error(f"{name}: {definition.library} is not in this image", "name a kernel")
        address = definition.address or 0
        if definition.symbol is not None:
            address = self._functions.names.address(definition.symbol)
        at = int(np.searchsorted(self._ip, np.uint64(address % (1 << 64))))
        ip = int(self._ip[at]) if at < len(self._ip) else 0
        if definition.offset or not 0 <= ip - address % (1 << 64) <= INTO:
            place = f"{definition.symbol or hex(address)}" + f"+{definition.offset:#x}" * bool(
                definition.offset
            )
            raise self._error(f"{name}: {place} is not the entry of a function with a site", EVENTS)
        return address % (1 << 64), ip

    def value(
        self,
        fetch: Fetch,
        definition: Definition,
        ip: int,
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
                first, number = First.ADDRESS, ip
            case Source.REGISTER:
                number = registers.numbers[fetch.text]
                if number not in code.registers:
                    reason = f"{definition.name}: %{fetch.text} is not live at a site"
                    raise self._error(reason, "fetch $argN")
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

    def drop_readers(
        self, by_ip: dict[int, list[tuple[Definition, HookProbe, int]]], refused: Refused
    ) -> None:
        """Refuse probes of the functions that probes read memory with: each read would be a hit."""
        every = [one for probes in by_ip.values() for one in probes]
        some = {names for _, probe, _ in every for names in readers_of(Hook(0, (probe,)))}
        names = {name for each in some for name in each}
        found = {self._image.symbols.find(name): name for name in sorted(names)}
        for ip in [at for at, probes in by_ip.items() if probes[0][2] in found]:
            for definition, _, entry in by_ip.pop(ip):
                with refused.told(self._image.path):
                    reason = f"{definition.name}: probes read memory with {found[entry]}"
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


def _record(definition: Definition, probe: HookProbe, entry: int, ip: int) -> dict[str, Any]:
    """What a stream's reader is told."""
    fields = []
    for fetch, value in zip(definition.fetches, probe.values, strict=True):
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
        "ip": entry,
        "site": ip,
        "returns": definition.kind == "r",
        "fields": fields,
    }
