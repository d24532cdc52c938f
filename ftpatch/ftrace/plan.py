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
from ftpatch.arch.instruction_set import instruction_set
from ftpatch.core.changes import Changes, Kind
from ftpatch.core.columns import within
from ftpatch.core.journal import journalled
from ftpatch.elf.sections import Headers, Tail
from ftpatch.errors import SiteRefused
from ftpatch.ftrace.added_symbols import name_callee
from ftpatch.ftrace.addr import Callee
from ftpatch.ftrace.call_ops import lay_ops_stub, load_ops
from ftpatch.ftrace.callees import CALLERS
from ftpatch.ftrace.dropped_records import Unrecorded, of_call, of_nop
from ftpatch.ftrace.laid_callee import LaidCallee, lay_callee
from ftpatch.ftrace.moved_records import move_records
from ftpatch.ftrace.records import follow, restore
from ftpatch.ftrace.relocatable_calls import link_calls
from ftpatch.ftrace.rewrite_table import rewrite_table
from ftpatch.ftrace.site_code import call_rows, read_code
from ftpatch.ftrace.sites import Sites
from ftpatch.ftrace.veneers import lay_veneers

__all__ = ["Plan", "plan_disable", "plan_enable", "plan_laid"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Changes, and their effect: ``code`` uint8[n, k] of all sites, linked; how many of the
    ``selected`` sites are changed, how many records are dropped or restored, and the state of a
    site without one (``unrecorded``). ``action`` is the last line of ftrace_bug; ``new``: the bytes
    of a NOP, empty for calls. ``tail`` is appended to the file; ``undefined`` names a callee that
    another file must define; ``calls`` counts PLT entries that call a tracer; ``length``:
    where the file is cut before the tail (offset), None for its end."""

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
    calls: int = 0
    length: int | None = None

    @property
    def unchanged(self) -> int:
        """Selected sites whose code stays."""
        return self.selected - self.changed


def plan_enable(
    sites: Sites, mask: NDArray[np.bool_], callee: Callee, *, keep_records: bool = False
) -> Plan:
    """Plan make_call and modify_call: the sites in ``mask``, bool[n], will call ``callee``.

    Raises SiteRefused where a branch cannot reach, or a record cannot be dropped.
    """
    addr = callee.addr
    action = "Setting ftrace call site to call ftrace function"
    if sites.abi.stubs and mask.any():
        raise SiteRefused(
            sites.image.path,
            "its sites branch to stubs, one for each, which ftrace_init makes when it runs: they "
            "cannot be enabled in a file",
            "enable them in the running kernel: set_ftrace_filter of tracefs",
        )
    if sites.arch.mcount_is_pad and sites.abi.pad and addr == sites.abi.mcount != 0:
        mask = np.zeros(len(sites), bool)
    already = (sites.state == State.CALL) & (_final(sites) == addr)
    wanted = mask & ~already
    code = addr & ~1 if instruction_set(sites.arch.name) else addr
    into = np.uint64(code) - (sites.ip - np.uint64(sites.lead))
    inside = wanted & (into > 0) & (into < sites.width)
    if inside.any():
        raise SiteRefused(sites.image.path, f"{code:#x} is inside a site to be changed")
    via, laid = np.full(len(sites), addr, np.uint64), Changes.concat([])
    if not sites.image.is_relocatable:  # else reaching it is up to the loader
        stub = None
        if callee.reads_ops:
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


def plan_laid(sites: Sites, mask: NDArray[np.bool_], laid: LaidCallee) -> Plan:
    """Plan calls of what is laid into a relocatable file for them, from the sites in ``mask``,
    bool[n]. Raises SiteRefused where that cannot be reached, or is there already, and InputError
    where the file has no room for it."""
    far = mask & ~sites.arch.reachable(sites.branch, laid.addr)
    if far.any():
        reason = f"{far.sum()} sites are too far from the end of the file for a call"
        raise SiteRefused(sites.image.path, reason, "use a module without debug information")
    plan = _plan(
        sites,
        mask,
        mask,
        sites.arch.make_call(sites.ip, laid.addr, sites.width, sites.abi),
        Changes.concat([]),
        keep_records=False,
        action="Setting ftrace call site to call ftrace function",
        callee=laid if mask.any() else None,
    )
    return replace(plan, unrecorded=Unrecorded.IGNORED)


def plan_disable(
    sites: Sites, mask: NDArray[np.bool_], nop: bytes = b"", *, keep_records: bool = False
) -> Plan:
    """Plan make_nop: the sites in ``mask``, bool[n], will do nothing. ``nop`` is a five-byte form,
    empty for the image's own. Raises SiteRefused where a record cannot be dropped."""
    new = sites.arch.make_nop(sites.width, nop, sites.abi)
    idle = sites.state == State.NOP
    if nop:  # another form replaces only code that is known
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
    size = 5 if sites.arch.nops else int(sites.width.max(initial=0))
    shown = sites.arch.make_nop(np.array([size], np.uint8), nop, sites.abi)[0]
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
    callee: Callee | LaidCallee | None = None,
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
    calls &= not (isinstance(callee, Callee) and not callee.reads_ops)
    if sites.image.is_relocatable:
        dropped = (sites.dropped | away) & ~back
        linked, tail = _link(sites, wanted, old, new, callee, dropped)
        parts.append(linked)
        # A call without its relocation is not the expected code.
        lost = call_rows(sites.image, sites.arch, sites.ip) < 0
        lost &= sites.state == State.CALL
        written = sites.arch.unlinked(new, sites.abi)
        old = np.where(lost[:, None], old, sites.arch.unlinked(old, sites.abi))
    elif sites.abi.kernel:
        parts += [restore(sites, back), follow(sites, away, calls)]
        parts.append(move_records(sites, (sites.dropped | away) & ~back))
    code = Changes.of(
        Kind.CODE,
        sites.offset[wanted],
        old[wanted],
        written[wanted],
        sites.ip[wanted],
        sites.width[wanted],
    )
    return Plan(
        changes=Changes.concat([code, *parts]),
        code=np.where(wanted[:, None], new, sites.code),
        selected=int(mask.sum()),
        changed=int(wanted.sum()),
        dropped=int((away & ~sites.dropped).sum()),
        restored=int((back & sites.dropped).sum()),
        action=action,
        tail=tail,
    )


def _link(
    sites: Sites,
    wanted: NDArray[np.bool_],
    old: U8,
    new: U8,
    callee: Callee | LaidCallee | None,
    dropped: NDArray[np.bool_],
) -> tuple[Changes, bytes]:
    """Changes to everything but the code of a relocatable file, and what is appended to it, when
    the linked code of the sites in ``wanted``, bool[n], goes from ``old`` to ``new``, uint8[n, k],
    and the records in ``dropped``, bool[n], are to be missing. Raises SiteRefused or InputError
    where the file has no room for it."""
    second = instruction_set(sites.arch.name)
    if sites.abi.pad and second is not None and callee is not None:
        raise SiteRefused(
            sites.image.path,
            "in a relocatable file of two instruction sets pads cannot become calls",
            "link it into a program, and enable that",
        )
    headers = Headers(sites.image.elf, Tail(sites.image.end))
    named = Changes.concat([])
    if isinstance(callee, LaidCallee):
        symbol = lay_callee(sites, callee, headers)
    else:
        row, named = name_callee(sites, wanted, callee if wanted.any() else None, headers)
        symbol = np.full(len(sites), row, np.int64)
    calls = link_calls(sites, wanted, old, new, symbol, headers)
    records = rewrite_table(sites, dropped, headers)
    return Changes.concat([named, calls, records, headers.changes()]), bytes(headers.tail.data)


def _records(
    sites: Sites, mask: NDArray[np.bool_], wanted: NDArray[np.bool_], new: U8, laid: Changes
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Sort the sites in ``mask``, bool[n], into those that ftrace_init would refuse, those that it
    would accept, and those of the first that call something in need of a literal. All are empty if
    no kernel reads the table."""
    if not sites.abi.kernel:
        none = np.zeros(len(sites), bool)
        return none, none, none
    final = np.where(wanted[:, None], new, sites.code)
    start, expected = sites.arch.init_expects(sites.ip, sites.abi)
    first = start + sites.lead
    fits = (final[:, first : first + expected.shape[1]] == expected).all(axis=1)
    state, addr, _, _ = sites.arch.decode(final, sites.ip, sites.abi)
    if not expected.shape[1]:  # it compares nothing, and turns any code into a NOP
        fits = state == State.NOP
    fits |= (state == State.NOP) & within(sites.ip, sites.abi.unchecked)
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
        # As in make_nop of a far addr: what is out of reach is called through a veneer, of which we
        # only know that a branch and link goes there.
        far = [addr for addr in own.tolist() if addr]
        for addr in far:
            known |= ~arch.reachable(sites.branch, np.full(len(sites), addr, np.uint64))
        known |= np.isin(_final(sites), own)
    calls &= known
    old[calls] = arch.make_call(sites.ip, sites.addr, sites.width, abi)[calls]
    if sites.blocks:
        written = _journalled(sites)
        left, _ = read_code(sites.left, arch, abi, sites.ip, sites.offset)
        old[written] = left[written]
    return old


def _final(sites: Sites) -> NDArray[np.uint64]:
    """Final targets of the sites' calls, through veneers and PLT entries; 0 for no call."""
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
