# SPDX-License-Identifier: MIT
"""Plans: what each selected site must become, as Changes.

Old code is generated, never copied from the site: it is what the compiler left, or a call of one
of the image's own ftrace entries (a modify_call), or what the journal says ftpatch wrote there.
Whether it really stands there is for the verifier to say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import State
from ftpatch.arch.contract import U8
from ftpatch.core.changes import Changes, Kind
from ftpatch.core.journal import journalled
from ftpatch.errors import SiteRefused
from ftpatch.ftrace.addr import Callee
from ftpatch.ftrace.call_ops import lay_ops_stub, load_ops
from ftpatch.ftrace.callees import CALLERS
from ftpatch.ftrace.dropped_records import Unrecorded, of_call, of_nop
from ftpatch.ftrace.records import follow, restore
from ftpatch.ftrace.relocatable import link
from ftpatch.ftrace.site_code import call_rows, read_code
from ftpatch.ftrace.sites import Sites
from ftpatch.ftrace.veneers import lay_veneers

__all__ = ["Plan", "plan_disable", "plan_enable"]


@dataclass(frozen=True, slots=True)
class Plan:
    """Changes, and what they come to: ``code`` uint8[n, k] of all sites, linked; how many of the
    ``selected`` sites change their code, how many records are dropped or restored, and what a
    site without one is then (``unrecorded``). ``action`` is
    how ftrace_bug ends; ``new`` names the bytes that NOPs are made of, empty for calls. ``tail`` is
    laid behind the end of the file; ``undefined`` names a callee that the file leaves to be defined
    elsewhere."""

    changes: Changes
    code: U8
    selected: int
    changed: int
    dropped: int
    restored: int
    action: str
    new: bytes = b""
    tail: bytes = b""
    undefined: str = ""
    unrecorded: Unrecorded = Unrecorded.OUT

    @property
    def unchanged(self) -> int:
        """Selected sites whose code stays."""
        return self.selected - self.changed


def plan_enable(
    sites: Sites, mask: NDArray[np.bool_], callee: Callee, *, keep_records: bool = False
) -> Plan:
    """make_call and modify_call: the sites in ``mask``, bool[n], are to call ``callee``.

    Raises SiteRefused where a branch cannot reach, or a record cannot be dropped.
    """
    addr = callee.addr
    action = "Setting ftrace call site to call ftrace function"
    if sites.arch.mcount_is_pad and sites.abi.pad and addr == sites.abi.mcount != 0:
        mask = np.zeros(len(sites), bool)
    already = (sites.state == State.CALL) & (_final(sites) == addr)
    wanted = mask & ~already
    into = np.uint64(addr) - (sites.ip - np.uint64(sites.lead))
    inside = wanted & (into > 0) & (into < sites.width)
    if inside.any():
        raise SiteRefused(sites.image.path, f"{addr:#x} is inside a site to be changed")
    via, laid = np.full(len(sites), addr, np.uint64), Changes.concat([])
    if not sites.image.is_relocatable:  # there it is for the loader to reach it
        stub = lay_ops_stub(sites, wanted, addr, keep_records=keep_records)
        via, laid = stub or lay_veneers(sites, wanted, addr)
    new = sites.arch.make_call(sites.ip, via, sites.width, sites.abi)
    if (sites.state[wanted] == State.CALL).any():
        action = "Updating ftrace call site to call a different ftrace function"
    plan = _plan(
        sites,
        mask,
        wanted,
        new,
        laid,
        keep_records=keep_records,
        action=action,
        callee=callee,
    )
    return replace(
        plan,
        undefined=callee.name if callee.undefined else "",
        unrecorded=of_call(sites, addr, callee.name if callee.undefined else ""),
    )


def plan_disable(
    sites: Sites, mask: NDArray[np.bool_], nop: bytes = b"", *, keep_records: bool = False
) -> Plan:
    """make_nop: the sites in ``mask``, bool[n], are to do nothing. ``nop`` is a five-byte form, or
    empty for the image's own. Raises SiteRefused where a record cannot be dropped."""
    new = sites.arch.make_nop(sites.width, nop, sites.abi)
    idle = sites.state == State.NOP
    if nop:  # another form is written only where it is known what stands there
        known = _journalled(sites) | sites.abi.pad
        idle &= ~known | _same(new, sites.code, sites.width)
    plan = _plan(
        sites,
        mask,
        mask & ~idle,
        new,
        Changes.concat([]),
        keep_records=keep_records,
        action="Setting ftrace call site to NOP",
    )
    shown = sites.arch.make_nop(np.array([5], np.uint8), nop, sites.abi)[0]
    size = 5 if sites.arch.lead(sites.abi) == 0 and sites.arch.nops else sites.arch.width
    return replace(plan, new=shown[:size].tobytes(), unrecorded=of_nop(sites, nop))


def _plan(
    sites: Sites,
    mask: NDArray[np.bool_],
    wanted: NDArray[np.bool_],
    new: U8,
    laid: Changes,
    *,
    keep_records: bool,
    action: str,
    callee: Callee | None = None,
) -> Plan:
    unplaced = wanted & ~sites.placed
    if unplaced.any():
        raise SiteRefused(
            sites.image.path,
            f"{unplaced.sum()} pads are longer than a call, and no symbol gives the "
            "function entry in them",
            "use an image with symbols",
        )
    old = _old(sites)
    written = new
    parts, tail = [laid], b""
    away, back, calls = _records(sites, mask, wanted, new, laid)
    away &= not keep_records
    if sites.image.is_relocatable:
        dropped = (sites.dropped | away) & ~back
        linked, tail = link(sites, wanted, old, new, callee, dropped)
        parts.append(linked)
        # A call whose relocation is missing is not what was expected.
        lost = call_rows(sites.image, sites.arch, sites.ip) < 0
        lost &= sites.state == State.CALL
        written = sites.arch.unlinked(new, sites.abi)
        old = np.where(lost[:, None], old, sites.arch.unlinked(old, sites.abi))
    elif sites.abi.kernel:
        parts += [restore(sites, back), follow(sites, away, calls)]
    code = Changes.of(
        Kind.CODE,
        sites.offset[wanted],
        old[wanted],
        written[wanted],
        sites.ip[wanted],
        sites.width[wanted],
    )
    return Plan(
        Changes.concat([code, *parts]),
        np.where(wanted[:, None], new, sites.code),
        selected=int(mask.sum()),
        changed=int(wanted.sum()),
        dropped=int((away & ~sites.dropped).sum()),
        restored=int((back & sites.dropped).sum()),
        action=action,
        tail=tail,
    )


def _records(
    sites: Sites, mask: NDArray[np.bool_], wanted: NDArray[np.bool_], new: U8, laid: Changes
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Sort the sites in ``mask``, bool[n], into those that ftrace_init would refuse, which it would
    accept, and which of the first call what needs a literal. None where no kernel will read the
    table."""
    if not sites.abi.kernel:
        none = np.zeros(len(sites), bool)
        return none, none, none
    final = np.where(wanted[:, None], new, sites.code)
    start, expected = sites.arch.init_expects(sites.ip, sites.abi)
    first = start + sites.lead
    fits = (final[:, first : first + expected.shape[1]] == expected).all(axis=1)
    state, addr, _, _ = sites.arch.decode(final, sites.ip, sites.abi)
    if not expected.shape[1]:  # it compares nothing, and makes a NOP of whatever stands there
        fits = state == State.NOP
    calls = mask & (state == State.CALL) & ~fits
    if sites.abi.nop_ops:
        calls &= ~load_ops(sites, addr, laid)
    return mask & ~fits, mask & fits, calls


def _old(sites: Sites) -> U8:
    """Old code of every site, uint8[n, k]."""
    arch, abi = sites.arch, sites.abi
    old = arch.compiled(sites.ip, sites.code, sites.width, abi)
    own = sites.targets.are((*arch.mcount_names, *CALLERS))
    own = np.append(own, np.uint64(abi.mcount)) if abi.mcount else own
    calls = (sites.state == State.CALL) & ~sites.got
    known = np.isin(sites.addr, own)
    if arch.veneer_size:
        # As make_nop of a far addr: what cannot be reached is called through a veneer, of which
        # no more is known than that a branch and link goes there.
        far = [addr for addr in own.tolist() if addr]
        for addr in far:
            known |= ~arch.reachable(sites.ip, np.full(len(sites), addr, np.uint64))
        known |= np.isin(_final(sites), own)
    calls &= known
    old[calls] = arch.make_call(sites.ip, sites.addr, sites.width, abi)[calls]
    if sites.blocks:
        written = _journalled(sites)
        left, _ = read_code(sites.left, arch, abi, sites.ip, sites.offset)
        old[written] = left[written]
    return old


def _final(sites: Sites) -> NDArray[np.uint64]:
    """Final targets of the sites' calls, behind veneers and PLT entries; 0 for no call."""
    if not len(sites.targets.addr):
        return np.zeros(len(sites), np.uint64)
    final = sites.targets.final[sites.targets.index(sites.addr)]
    return np.where(sites.state == State.CALL, final, np.uint64(0))


def _journalled(sites: Sites) -> NDArray[np.bool_]:
    """Sites whose code ftpatch wrote."""
    return np.isin(sites.ip, journalled(sites.blocks, Kind.CODE).owner)


def _same(new: U8, code: U8, width: NDArray[np.uint8]) -> NDArray[np.bool_]:
    beyond = np.arange(code.shape[1]) >= width[:, None]
    return np.asarray(((new == code) | beyond).all(axis=1))
