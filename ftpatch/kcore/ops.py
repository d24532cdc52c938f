# SPDX-License-Identifier: MIT
"""Callees of a kernel's sites in a core: every ftrace_ops, and which sites it traces.

    ftrace_ops_list -> ftrace_ops { func, func_hash, trampoline } -> ... -> ftrace_list_end

A site that one ops traces may call the trampoline that ftrace made for it; else it calls
ftrace_caller or ftrace_regs_caller, which goes through the list. BPF's trampolines are called
directly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import State
from ftpatch.core.columns import addresses, held
from ftpatch.ftrace.callees import CALLERS
from ftpatch.ftrace.sites import Sites
from ftpatch.kcore.in_core import InCore
from ftpatch.kcore.lists import MAX_WALK, Memory

__all__ = ["Callees", "Ops", "read_callees"]

LIVE_PATCH = "klp_ftrace_handler"
EMPTY: NDArray[np.uint64] = np.zeros(0, np.uint64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ops:
    """An ftrace_ops, at ``address`` in the running kernel. ``name``: its function, and whose that
    is; ``trampoline``: address and size of its own, 0 where it has none; ``traced`` and
    ``notrace``: link addresses of functions, uint64[n] (none: all; none)."""

    address: int
    name: str
    trampoline: tuple[int, int]
    traced: NDArray[np.uint64] = field(repr=False)
    notrace: NDArray[np.uint64] = field(repr=False)

    def traces(self, ip: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Test which sites it traces, bool[n]."""
        every = held(ip, self.traced) if len(self.traced) else np.ones(len(ip), bool)
        return np.asarray(every & ~held(ip, self.notrace))


@dataclass(frozen=True, kw_only=True)
class Callees:
    """``ops``: all of them. ``ranges``: code outside the kernel's text, by (start, end, name):
    trampolines, BPF's images, modules."""

    ops: tuple[Ops, ...]
    ranges: tuple[tuple[int, int, str], ...]
    direct: dict[int, int] = field(repr=False)
    """Link address of a site -> what it may call without ftrace's help."""

    def name(self, address: int) -> str:
        """Name the code at an address of the running kernel; empty if it is not known."""
        return next((name for start, end, name in self.ranges if start <= address < end), "")

    def handlers(self, ip: NDArray[np.uint64]) -> list[tuple[str, ...]]:
        """Names of the ops that trace each site, by link address."""
        masks = [(one.name, one.traces(ip)) for one in self.ops]
        return [tuple(name for name, mask in masks if mask[row]) for row in range(len(ip))]

    def named(self, kernel: InCore) -> Sites:
        """The kernel's sites, with names of callees that are not in its text, and of the ops behind
        ftrace's own entries where all of their sites have the same."""
        sites = kernel.sites
        targets = sites.targets
        calls = sites.state == State.CALL
        name = []
        for text, at in zip(targets.name, targets.addr.tolist(), strict=True):
            if text in CALLERS:
                rows = np.flatnonzero(calls & (sites.addr == np.uint64(at)))
                every = set(self.handlers(sites.ip[rows])) if len(rows) else set()
                known = sorted({", ".join(one) for one in every if one})
                name.append(f"{text} ({'; '.join(known)})" if known else text)
            else:
                name.append((text.startswith("0x") and self.name(kernel.above(at))) or text)
        return replace(sites, targets=replace(targets, name=tuple(name)))


def read_callees(memory: Memory) -> Callees:
    """Read all of them. Raises InputError for a kernel whose structures are not as expected."""
    modules = tuple(_modules(memory))
    ops = tuple(_ops(memory, modules))
    ranges = [
        (one.trampoline[0], sum(one.trampoline), f"trampoline ({one.name})")
        for one in ops
        if one.trampoline[0]
    ]
    ranges += _bpf(memory)
    direct = _direct(memory)
    return Callees(ops=ops, ranges=(*ranges, *modules), direct=direct)


def _ops(memory: Memory, modules: tuple[tuple[int, int, str], ...]) -> Iterator[Ops]:
    struct = memory.btf.require("ftrace_ops", "func", "next", "func_hash", "trampoline")
    end = memory.symbol("ftrace_list_end")
    at, seen = memory.word(memory.symbol("ftrace_ops_list")), 0
    while at and at != end and seen < MAX_WALK:
        word = {name: memory.word(at + offset) for name, offset in struct.offset.items()}
        function = word.get("saved_func") or word["func"]
        name = _function(memory, function, modules)
        if name == LIVE_PATCH:
            name = _live_patch(memory, at, modules) or name
        hashes = word["func_hash"]
        yield Ops(
            address=at,
            name=name,
            trampoline=(word["trampoline"], word.get("trampoline_size", 0) or 1),
            traced=_hash(memory, memory.member(hashes, "ftrace_ops_hash", "filter_hash")),
            notrace=_hash(memory, memory.member(hashes, "ftrace_ops_hash", "notrace_hash")),
        )
        at, seen = word["next"], seen + 1


def _hash(memory: Memory, address: int) -> NDArray[np.uint64]:
    """Link addresses of the functions in an ftrace_hash."""
    found = [memory.member(at, "ftrace_func_entry", "ip") for at in _entries(memory, address)]
    return addresses(*map(memory.kernel.below, found)) if found else EMPTY


def _entries(memory: Memory, address: int) -> Iterator[int]:
    if not address or not memory.member(address, "ftrace_hash", "count"):
        return
    bits = memory.member(address, "ftrace_hash", "size_bits") & 63
    table = memory.member(address, "ftrace_hash", "buckets")
    if bits > 20:  # FTRACE_HASH_MAX_BITS is 12
        return
    for first in memory.heads(table, 1 << bits):
        yield from memory.chained(first, "ftrace_func_entry", "hlist")


def _direct(memory: Memory) -> dict[int, int]:
    at = memory.symbol("direct_functions")
    if not at or "direct" not in memory.btf.require("ftrace_func_entry", "ip").offset:
        return {}
    return {
        memory.kernel.below(memory.member(entry, "ftrace_func_entry", "ip")): memory.member(
            entry, "ftrace_func_entry", "direct"
        )
        for entry in _entries(memory, memory.word(at))
    }


def _function(memory: Memory, at: int, modules: tuple[tuple[int, int, str], ...]) -> str:
    """Name of a function, or of the module that has it."""
    place = memory.kernel.file.kallsyms.places(addresses(memory.kernel.below(at)))[0]
    if place.endswith("+0x0"):
        return place.removesuffix("+0x0")
    return next((name for start, end, name in modules if start <= at < end), hex(at))


def _live_patch(memory: Memory, ops: int, modules: tuple[tuple[int, int, str], ...]) -> str:
    """A live patch, by the module that has the function that it puts in."""
    at = ops - memory.btf.require("klp_ops", "fops").offset["fops"]
    head = at + memory.btf.require("klp_ops", "func_stack").offset["func_stack"]
    for function in memory.linked(head, "klp_func", "stack_node"):
        new = memory.member(function, "klp_func", "new_func")
        name = next((name for start, end, name in modules if start <= new < end), hex(new))
        return f"live patch {name}"
    return ""


def _bpf(memory: Memory) -> Iterator[tuple[int, int, str]]:
    """Programs and trampolines, by the names that kallsyms gives them."""
    struct = memory.btf.struct("bpf_ksym", ("start", "end", "name", "lnode"))
    if struct is None:
        return
    for at in memory.linked(memory.symbol("bpf_kallsyms"), "bpf_ksym", "lnode"):
        start, end = (memory.word(at + struct.offset[name]) for name in ("start", "end"))
        yield start, end, memory.kernel.core.text(at + struct.offset["name"])


def _modules(memory: Memory) -> Iterator[tuple[int, int, str]]:
    """The code of each module, by its name in brackets."""
    struct = memory.btf.struct("module", ("list", "name"))
    if struct is None:
        return
    older = memory.btf.struct("module_layout", ("base", "size"))
    newer = memory.btf.struct("module_memory", ("base", "size"))
    layout, member = (older, "core_layout") if "core_layout" in struct.offset else (newer, "mem")
    if layout is None or member not in struct.offset:
        return
    for at in memory.linked(memory.symbol("modules"), "module", "list"):
        name = memory.kernel.core.text(at + struct.offset["name"], 56)
        base = at + struct.offset[member]
        start = memory.word(base + layout.offset["base"])
        size = memory.kernel.core.word(base + layout.offset["size"], 4) or 0
        yield start, start + size, f"[{name}]"
