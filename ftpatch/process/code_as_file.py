# SPDX-License-Identifier: MIT
"""Check of an image in a process's memory: its sites as they stand there, and all of its code
against its file.

Breakpoints and uprobes are found, inline hooks, and what was patched while it ran. What the dynamic
linker relocates is left out, as are pages that are no image's: a just-in-time compiler's, the vdso.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import State
from ftpatch.errors import InputError
from ftpatch.ftrace.check.check import CODE_AS_FILE, check_sites
from ftpatch.ftrace.check.findings import Check, Finding
from ftpatch.ftrace.check.function_rules import recorded
from ftpatch.ftrace.sites import Sites
from ftpatch.process.loaded import Loaded

__all__ = ["check_loaded"]

NEAR = 16
"""Bytes that may lie between two differences of one finding; a patch may leave some as they are."""
SHOWN = 16
"""Bytes of each side that a finding shows."""


def check_loaded(loaded: Loaded, *, functions: bool = False) -> Check:
    """Check it; with ``functions`` tell those that have a record as well. Raises InputError for
    what cannot be read."""
    if not loaded.there.any():
        reason = f"{loaded.process}: none of its code is in memory that can be read"
        raise InputError(loaded.path, reason)
    sites = loaded.sites
    bare = not sites.table_name
    found = [] if bare else list(check_sites(sites).findings)
    own = loaded.own.jumps.keys() | _calls_of_own(loaded)
    if own:  # told of below
        found = [one for one in found if one.ip is None or loaded.above(one.ip) not in own]
    if len(loaded.changed):
        found += _sites(loaded)
        found += _others(loaded)
    return Check(
        findings=tuple(_above(loaded, finding) for finding in found),
        ftrace_init=None,
        recorded=recorded(sites) if functions and not bare else (),
        bare=bare,
        pid=loaded.process.pid,
        source=loaded.place,
    )


def _calls_of_own(loaded: Loaded) -> set[int]:
    """Addresses in the process of the sites that call ftpatch's own tracer."""
    sites = loaded.sites
    calls = sites.ip[(sites.state == State.CALL) & loaded.calls_own(sites.addr)]
    return set(map(loaded.above, calls.tolist()))


def _above(loaded: Loaded, finding: Finding) -> Finding:
    """The finding with its address in the process."""
    if finding.ip is None:
        return finding
    return replace(finding, ip=loaded.above(finding.ip), bias=loaded.bias)


def _sites(loaded: Loaded) -> Iterator[Finding]:
    """A finding for each site that differs."""
    now, before, probes = (
        loaded.sites,
        loaded.named(loaded.sites_of_file),
        loaded.own.jumps,
    )
    rows = np.flatnonzero(loaded.differing)
    widths = np.maximum(now.width, before.width)[rows].tolist()
    places = loaded.file.kallsyms.places(now.ip[rows])
    for row, width, place in zip(rows.tolist(), widths, places, strict=True):
        is_, was = _words(now, row), _words(before, row)
        if names := probes.get(loaded.above(int(now.ip[row]))):
            is_ = f"a jump to ftpatch's code ({names})"
        message = f"{is_} in memory, {was} in the file"
        yield _finding(
            loaded,
            offset=int(now.offset[row]),
            size=width,
            ip=int(now.ip[row]),
            place=place,
            message=f"another form of {is_} than the file has" if is_ == was else message,
        )


def _words(sites: Sites, row: int) -> str:
    match State(sites.state[row]):
        case State.NOP:
            return "a NOP"
        case State.CALL:
            return f"a call to {sites.targets.name[int(sites.targets.index(sites.addr[[row]])[0])]}"
    return "neither a NOP nor a call"


def _others(loaded: Loaded) -> Iterator[Finding]:
    """A finding for each place outside the sites at which code differs."""
    offset = loaded.changed
    offset = offset[~np.isin(offset, _bytes_of_sites(loaded))]
    if not len(offset):
        return
    address = loaded.file.elf.address_of(offset)
    kallsyms = loaded.file.kallsyms
    function = kallsyms.groups_of(address)
    probes = loaded.own.jumps
    fresh = np.ones(len(offset), bool)
    fresh[1:] = (np.diff(offset) > NEAR) | (function[1:] != function[:-1])
    first = np.flatnonzero(fresh)
    last = np.append(first[1:], len(offset)) - 1
    places = kallsyms.places(address[first])
    rows = zip(first.tolist(), last.tolist(), places, strict=True)
    for start, end, place in rows:
        number = end - start + 1
        differ = "1 byte differs" if number == 1 else f"{number} bytes differ"
        message = f"{differ} from the file"
        if names := probes.get(loaded.above(int(address[start]))):
            kind = "a trap" if number == 1 else "a jump"
            message = f"{kind} to ftpatch's code ({names}), {message}"
        yield _finding(
            loaded,
            offset=int(offset[start]),
            size=int(offset[end] - offset[start]) + 1,
            ip=int(address[start]),
            place=place,
            message=message,
        )


def _bytes_of_sites(loaded: Loaded) -> NDArray[np.int64]:
    """Offsets of all bytes of the sites that differ."""
    now, before = loaded.sites, loaded.sites_of_file
    rows = np.flatnonzero(loaded.differing)
    width = np.maximum(now.width, before.width)[rows].astype(np.int64)
    column = np.arange(now.code.shape[1])
    at: NDArray[np.int64] = (now.offset[rows][:, None] + column)[column < width[:, None]]
    return at


def _finding(
    loaded: Loaded, *, offset: int, size: int, ip: int, place: str, message: str
) -> Finding:
    """A finding with the code in memory, and what it should be, as ftrace_bug shows them."""
    part = slice(offset, offset + min(size, SHOWN))
    more = ":..." if size > SHOWN else ""
    actual = loaded.image.data[part].tobytes().hex(":")
    expected = loaded.file.data[part].tobytes().hex(":")
    return Finding(
        invariant=CODE_AS_FILE,
        ip=ip,
        symbol=place,
        message=message,
        bug=f" actual:   {actual}{more}\n expected: {expected}{more}",
    )
