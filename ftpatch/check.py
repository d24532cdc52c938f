"""Invariants of a table and its sites, each with a name, and for a kernel the ftrace bug that its
ftrace_init would report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import State
from ftpatch.bug import bug_text
from ftpatch.changes import Kind
from ftpatch.columns import addresses
from ftpatch.forecast import Forecast, forecast
from ftpatch.image.relocations import Form
from ftpatch.journal import journalled
from ftpatch.sites import Sites
from ftpatch.sites.targets import CALLERS

__all__ = ["INVARIANTS", "Check", "Finding", "check_sites"]

INVARIANTS = {
    "table-found": "the image has a table of call sites",
    "record-unique": "each site has one record",
    "record-in-text": "each record is in executable text that the file holds",
    "record-aligned": "each site is aligned as an instruction",
    "record-sorted": "a table that was sorted when the kernel was built still is",
    "site-placed": "symbols tell where in a pad longer than a call the function begins",
    "site-overlap": "no two sites share a byte",
    "site-relocated": "no relocation writes over a site when the file is loaded",
    "site-known": "each site holds a known NOP or a call",
    "site-target": "each call goes to one of the image's own ftrace entries",
    "ftrace_init": "the kernel's ftrace_init accepts every record",
}
FEW = 500
"""A table with fewer than one descent in this many records was sorted once."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken invariant; ``ip`` is the site's or record's address, ``bug`` ftrace_bug's text."""

    invariant: str
    ip: int
    symbol: str
    message: str
    bug: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """All findings, and, for a kernel, what its ftrace_init will do."""

    findings: tuple[Finding, ...]
    forecast: Forecast | None


def check_sites(sites: Sites) -> Check:
    """Check every invariant. Nothing is raised: what parses gets findings."""
    found = [
        *_broken(sites, "record-unique", _repeated(sites), "the table has this record again"),
        *_broken(sites, "record-in-text", sites.offset < 0, "the record is not in executable text"),
        *_broken(
            sites,
            "record-aligned",
            sites.ip % np.uint64(sites.arch.align) != 0,
            f"the site is not aligned to {sites.arch.align} bytes",
        ),
        *_sorted(sites),
        *_broken(
            sites, "site-overlap", _overlaps(sites), "the site shares bytes with the one before it"
        ),
        *_broken(
            sites, "site-placed", ~sites.placed, "no symbol tells where in this pad code begins"
        ),
        *_broken(sites, "site-relocated", _relocated(sites), "a relocation writes over this site"),
        *_unknown(sites),
        *_targets(sites),
    ]
    if not sites.abi.kernel:
        return Check(tuple(found), None)
    outlook = forecast(sites)
    if outlook.bug is not None:
        bug = outlook.bug
        message = "ftrace_init will refuse this record, and ftrace is off from there on"
        found.append(Finding("ftrace_init", bug.ip, bug.place, message, bug_text(bug)))
    return Check(tuple(found), outlook)


def _broken(
    sites: Sites, invariant: str, mask: NDArray[np.bool_], message: str
) -> Iterator[Finding]:
    ip = sites.ip[mask]
    for at, place in zip(ip.tolist(), sites.image.kallsyms.places(ip), strict=True):
        yield Finding(invariant, at, place, message)


def _repeated(sites: Sites) -> NDArray[np.bool_]:
    _, first = np.unique(sites.ip, return_index=True)
    repeated = np.ones(len(sites), bool)
    repeated[first] = False
    return repeated & ~sites.dropped


def _relocated(sites: Sites) -> NDArray[np.bool_]:
    start = sites.ip - np.uint64(sites.lead)
    width = sites.width.astype(np.int64)
    return sites.image.relocations.touch(start, width, sites.image.elf.word)


def _overlaps(sites: Sites) -> NDArray[np.bool_]:
    """Sites whose code begins before that of a lower site ends; the same site twice is no overlap
    but a repeated record."""
    start = sites.ip - np.uint64(sites.lead)
    unique, first = np.unique(start, return_index=True)
    end = unique + sites.width[first]
    hit = first[1:][unique[1:] < np.maximum.accumulate(end)[:-1]]
    mask = np.zeros(len(sites), bool)
    mask[hit] = True
    return mask


def _sorted(sites: Sites) -> Iterator[Finding]:
    """Tables that hold their values in place are sorted when the kernel is built; those that are
    filled by relocations are in link order, and the kernel sorts them."""
    table = sites.table_before
    relocations = sites.original.relocations
    by_addend = (
        relocations.form[table.relocation[table.relocation >= 0]] == Form.RELA
        if len(relocations.form)
        else np.zeros(0, bool)
    )
    value = table.value[~np.isin(table.value, np.array(sites.arch.skips, np.uint64))]
    descents = np.flatnonzero(value[1:] < value[:-1])
    if (
        not sites.abi.kernel
        or by_addend.any()
        or not 0 < len(descents) <= max(2, len(value) // FEW)
    ):
        return
    at = value[descents[:1] + 1]
    yield Finding(
        "record-sorted",
        int(at[0]),
        sites.image.kallsyms.places(at)[0],
        "the record is lower than the one before it; a kernel that relies on the build's order "
        "will not find functions by address",
    )


def _unknown(sites: Sites) -> Iterator[Finding]:
    mask = (sites.state == State.UNEXPECTED) & (sites.offset >= 0)
    rows = np.flatnonzero(mask)
    for row, finding in zip(rows.tolist(), _broken(sites, "site-known", mask, ""), strict=True):
        code = sites.code[row].tobytes()
        message = f"neither a known NOP nor a call: {code.hex(':')}"
        yield Finding(finding.invariant, finding.ip, finding.symbol, message)


def _targets(sites: Sites) -> Iterator[Finding]:
    own = sites.targets.are((*sites.arch.mcount_names, *CALLERS))
    own = np.append(own, addresses(sites.abi.mcount, sites.abi.mcount_got))
    final = [int(f) for f in sites.targets.final if f in own]
    own = np.append(
        own, sites.targets.addr[np.isin(sites.targets.final, np.array(final, np.uint64))]
    )
    ours = np.isin(sites.ip, journalled(sites.blocks, Kind.CODE).owner)
    mask = (sites.state == State.CALL) & ~np.isin(sites.addr, own) & ~ours
    rows = np.flatnonzero(mask)
    for row, finding in zip(rows.tolist(), _broken(sites, "site-target", mask, ""), strict=True):
        target = sites.targets.name[int(sites.targets.index(sites.addr[row : row + 1])[0])]
        message = f"calls {target}, which is none of the image's ftrace entries"
        yield Finding(finding.invariant, finding.ip, finding.symbol, message)
