# SPDX-License-Identifier: MIT
"""Text that a kernel changed itself, replayed: what is left is a finding.

The tables of the architecture come first, then those that all have: static keys, ftrace's sites,
kprobes. A static key's branch has to be the one that the key's value demands.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import State, feature
from ftpatch.arch.contract import U64
from ftpatch.arch.text_patching import TextPatching
from ftpatch.core.columns import addresses, held
from ftpatch.ftrace.callees import CALLERS
from ftpatch.ftrace.sites import Sites
from ftpatch.kcore.in_core import InCore
from ftpatch.kcore.kernel_text import Text
from ftpatch.kcore.kprobes import Kprobe, read_kprobes
from ftpatch.kcore.lists import Memory
from ftpatch.kcore.ops import Callees, read_callees

__all__ = ["Explained", "explain"]

BRANCH = 1
"""JUMP_LABEL's bit of a key: the branch is likely."""
POINTER = (1 << 64) - 4
GATES = ("ftrace_call", "ftrace_regs_call", "ftrace_graph_call")
"""Places in ftrace's own entries that it changes."""
LIST_OPS = ("ftrace_nop_ops", "ftrace_list_ops")
"""Ops of a site that none traces, or several."""
MAX_CODE = 8
"""Bytes of a gate, or of a static key's branch, at most."""


@dataclass(frozen=True, kw_only=True)
class Explained:
    """``left``: link addresses of the bytes that nothing explains, uint64[m]; ``astray`` bool[n]:
    sites that call what is no ops', with what ftrace knows of callees; ``kprobes`` in the text."""

    text: Text
    callees: Callees
    sites: Sites
    left: U64
    astray: NDArray[np.bool_]
    kprobes: tuple[Kprobe, ...]


def explain(kernel: InCore) -> Explained:
    """Replay all that a kernel did to its text. Raises InputError where that is not supported, and
    for a kernel without BTF."""
    patching: TextPatching = feature(kernel.sites_of_file.arch.name, "text_patching")
    memory = Memory(kernel)
    text = Text(kernel, memory)
    callees = read_callees(memory)
    for patcher in patching.patchers:
        patcher(text)
    _relocated(text)
    _jump_labels(text, patching)
    sites = callees.named(kernel)
    astray = _sites(text, sites, callees, patching)
    _literals(text, sites, callees)
    _gates(text, patching, callees)
    kprobes = tuple(read_kprobes(memory))
    unread = sites.ip[sites.state == State.UNEXPECTED] - np.uint64(sites.lead)
    starts = set(unread.tolist())
    found = tuple(one for one in kprobes if _kprobe(text, one, patching, starts))
    return Explained(
        text=text,
        callees=callees,
        sites=sites,
        left=text.differing(),
        astray=astray,
        kprobes=found,
    )


def _relocated(text: Text) -> None:
    """Settle words that the kernel relocates when it boots."""
    kernel = text.kernel
    relocations, arch = kernel.file.relocations, kernel.sites_of_file.arch
    rows = np.flatnonzero(relocations.type == arch.relative)
    rows = rows[text.inside(relocations.place[rows])]
    value = relocations.addend[rows].astype(np.int64).view(np.uint64) + np.uint64(kernel.bias)
    text.settle(relocations.place[rows], np.full(len(rows), MAX_CODE), _bytes(value))


def _literals(text: Text, sites: Sites, callees: Callees) -> None:
    """Settle the ops pointers in front of functions (CALL_OPS): of ftrace's, or of an ops."""
    if not sites.abi.nop_ops:
        return
    at = sites.arch.literal(sites.ip)
    known = [text.kernel.above(found) for name in LIST_OPS if (found := text.find(name))]
    known += [one.address for one in callees.ops]
    forms = [_bytes(np.full(len(at), each, np.uint64)) for each in known]
    text.settle(at, np.full(len(at), MAX_CODE), *forms)


def _bytes(value: U64) -> NDArray[np.uint8]:
    return value.astype("<u8")[:, None].view(np.uint8)


def _jump_labels(text: Text, patching: TextPatching) -> None:
    rows = text.table("__start___jump_table", "__stop___jump_table", "jump_entry", ("code", "key"))
    if not len(rows):
        return
    at, target = rows.address("code"), rows.address("target")
    key = rows.address("key", "<i8")
    inside = text.inside(at)
    at, target, key = at[inside], target[inside], key[inside]
    unique, which = np.unique(key & np.uint64(POINTER), return_inverse=True)
    value = np.array([text.number(each, 4) for each in unique.tolist()], np.uint32)
    enabled = value.view(np.int32)[which]
    jumps = (enabled != 0) ^ (key & np.uint64(BRANCH) != 0)
    forms = patching.jump_labels(text.compiled(at, MAX_CODE), at, target)
    form = np.where(jumps[:, None], forms.jump, forms.nop)
    text.settle(at, forms.width, form, only=True)
    changing = enabled < 0  # static_key_slow_inc: it was at it
    text.settle(at[changing], forms.width[changing], forms.jump[changing], forms.nop[changing])


def _sites(text: Text, sites: Sites, callees: Callees, patching: TextPatching) -> NDArray[np.bool_]:
    """Settle the sites that are NOPs, and those whose callee is known; return the others that are
    calls, bool[n]."""
    start = sites.ip - np.uint64(sites.lead)
    width = sites.width.astype(np.int64)
    idle = np.zeros(len(sites), bool)
    for code in patching.entry_nops:
        nop = np.frombuffer(code, np.uint8)
        idle |= (sites.code[:, : len(nop)] == nop).all(axis=1)
    idle &= sites.state == State.NOP
    calls = sites.state == State.CALL
    kernel = text.kernel
    known = [at for name in CALLERS if (at := text.find(name))]
    starts = [one.trampoline[0] for one in callees.ops if one.trampoline[0]]
    known += map(kernel.below, starts)
    good = calls & held(sites.addr, addresses(*known))
    targets = [callees.direct.get(ip, 0) for ip in sites.ip[calls & ~good].tolist()]
    rows = np.flatnonzero(calls & ~good)
    for row, direct in zip(rows.tolist(), targets, strict=True):
        called = kernel.above(int(sites.addr[row]))
        good[row] = called == direct or callees.name(called).startswith("bpf_")
    rows = np.flatnonzero(idle | good)
    text.settle(start[rows], width[rows], sites.code[rows])
    return np.asarray(calls & ~good)


def _gates(text: Text, patching: TextPatching, callees: Callees) -> None:
    """Settle calls in ftrace's entries: of what an ops has as its function, or NOPs."""
    functions = {text.find(one.name) for one in callees.ops} | {
        text.find(name) for name in ("ftrace_ops_list_func", "arch_ftrace_ops_list_func")
    }
    functions |= {text.find(name) for name in ("ftrace_stub", "ftrace_graph_caller")}
    for name in GATES:
        at = text.find(name)
        if at:
            code = text.now(addresses(at), MAX_CODE)[0].tobytes()
            is_nop = code.startswith(patching.branch_nop)
            size = patching.branch_size
            if is_nop or patching.jump_target(code, at) in functions - {0}:
                text.accept(at, size)


def _kprobe(text: Text, probe: Kprobe, patching: TextPatching, starts: set[int]) -> bool:
    """Settle a probe in the text: its breakpoint, or a jump to its slot; whether it is there. Where
    it is on the first instruction of a site (``starts``), the second may call ftrace's entries."""
    at = text.kernel.below(probe.address)
    if not text.inside(addresses(at))[0]:
        return False
    code = text.now(addresses(at), MAX_CODE)[0].tobytes()
    if code.startswith(patching.breakpoint):
        size = len(patching.breakpoint)
        text.accept(at, size)
        target = patching.jump_target(code[size:], at + size)
        if at in starts and target in {text.find(name) for name in CALLERS} - {0}:
            text.accept(at + size, patching.branch_size)
    elif probe.slot and patching.jump_target(code, at) == text.kernel.below(probe.slot):
        text.accept(at, patching.branch_size)
    return True
