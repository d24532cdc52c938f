# SPDX-License-Identifier: MIT
"""The locations of a command's probes, and the method for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ftpatch.arch import State
from ftpatch.arch.returns_twice import returns_twice, takes_return
from ftpatch.errors import FtpatchError, Refused, UsageError
from ftpatch.ftrace.sites import read_sites
from ftpatch.image import Image
from ftpatch.image.language import is_go
from ftpatch.inject.probe_methods import Chosen, Methods
from ftpatch.names.functions import Functions
from ftpatch.probe import Definition
from ftpatch.probe.definition import Source
from ftpatch.probe.early_calls import called_early
from ftpatch.probe.wildcards import skipping

__all__ = ["Location", "find_pads", "find_locations"]


@dataclass(frozen=True, kw_only=True)
class Location:
    """The probes at one place, p probes first: they must not see the replaced return address."""

    ip: int
    chosen: Chosen
    definitions: tuple[Definition, ...]


def find_locations(
    methods: Methods,
    functions: Functions,
    definitions: Sequence[Definition],
    refused: Refused,
    *,
    optimize: bool,
    started: bool = False,
    require_own: Callable[[int], None] = lambda _: None,
) -> list[Location]:
    """Find the locations by address, leaving out what is ``refused``, by ``require_own`` before
    anything else; ``started``: what the dynamic linker calls has been called. Raises UsageError
    for a Go program: a probe needs more than the 800 bytes (StackLimit, internal/abi) that a
    goroutine's stack is sure to have left, and its stack is copied, by the return addresses on
    it."""
    by_ip: dict[int, list[Definition]] = {}
    path = functions.image.path
    if is_go(functions.image):
        reason = "a Go program, whose goroutines' stacks have no room for probes, and are copied"
        raise UsageError(path, reason, "use uprobes at entries")
    for definition in definitions:
        with refused.told(skips=skipping([definition])):
            by_ip.setdefault(_address(functions, definition), []).append(definition)
    addresses = sorted(by_ip)
    possible: dict[int, Chosen] = {}
    for ip, after in zip(addresses, [*addresses[1:], None], strict=False):
        with refused.told(skips=skipping(by_ip[ip])):
            require_own(ip)
            possible[ip] = methods.choose(ip, optimize=optimize, until=after)
    locations: list[Location] = []
    traps = not started and any(one.method.traps for one in possible.values())
    early = called_early(functions) if traps else frozenset[int]()
    for ip, chosen in zip(possible, methods.with_hops([*possible.values()]), strict=True):
        names = ", ".join(one.event for one in by_ip[ip])
        with refused.told(skips=skipping(by_ip[ip])):
            if locations and chosen.address == locations[-1].chosen.address:
                both = f"{locations[-1].ip:#x} and {ip:#x}"
                reason = f"{names}: {both} are the same location, before and after its landing pad"
                raise UsageError(path, reason, "use one of them")
            if chosen.method.traps and _start(functions, ip) in early:
                reason = "it may run before the program's entry, where no trap can be caught yet"
                raise UsageError(path, f"{names}: {reason}")
            ordered = sorted(by_ip[ip], key=lambda one: one.kind)
            locations.append(Location(ip=ip, chosen=chosen, definitions=tuple(ordered)))
    return locations


def _start(functions: Functions, address: int) -> int:
    around = functions.around(address)
    return around[0] if around else address


def _address(functions: Functions, definition: Definition) -> int:
    """Resolve a definition to a link address. Raises UsageError if there is no such place."""
    path = functions.image.path
    if definition.symbol is None:
        address = definition.address or 0
        arguments = any(one.source == Source.ARGUMENT for one in definition.fetches)
        if arguments and address not in functions.start:
            raise UsageError(
                path,
                f"{definition.event}: $argN can be used only on function entry, and {address:#x} "
                "is not a known entry",
                "fetch %REG",
            )
    else:
        start = functions.names.address(definition.symbol)
        start = functions.chosen.get(start, start)
        address = start + definition.offset
        around = functions.around(start)
        if around is not None and address >= around[1]:
            size = around[1] - around[0]
            raise UsageError(
                path, f"{definition.symbol} has {size} bytes, not {definition.offset + 1}"
            )
    if definition.kind == "r" and not functions.is_called(address):
        raise UsageError(
            path,
            f"{definition.event}: {address:#x} is not a known function entry",
            "use a p probe",
        )
    if definition.kind == "r" and (
        address in functions.names.twice
        or returns_twice(functions.arch, functions.marked(address), functions.code_at)
    ):
        raise UsageError(
            path,
            f"{definition.event}: the function at {address:#x} returns twice per call",
            "use a p probe",
        )
    if definition.kind == "r" and takes_return(
        functions.arch, functions.marked(address), functions.code_at
    ):
        raise UsageError(
            path,
            f"{definition.event}: the function at {address:#x} returns its own return address",
            "use a p probe",
        )
    return address


def find_pads(image: Image) -> set[int]:
    """Find the table's pads that are still as the compiler left them, by address."""
    try:
        sites = read_sites(image)
    except FtpatchError:
        return set()
    if not sites.abi.pad:
        return set()
    nops = (sites.state == State.NOP) & sites.placed & (sites.offset >= 0)
    starts = sites.ip[nops] - np.uint64(sites.lead)
    return set(starts.tolist())
