# SPDX-License-Identifier: MIT
"""The end of a boot: what happened, where, and what led there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.boot import Events
from ftpatch.boot.chain import latest_chains, latest_events, stack_numbers
from ftpatch.boot.console import Place, Words, read_console
from ftpatch.boot.machine import Progress, fault_in
from ftpatch.boot.stream import Source
from ftpatch.core.columns import addresses
from ftpatch.debuginfo.lines import Lines
from ftpatch.errors import Exit, FtpatchError
from ftpatch.image import Image

__all__ = ["Ending", "explain_end", "names_at"]

FUNCTIONS = 10
"""Functions to report."""
LINES = 3
"""Console lines to report."""
DEEP = 16
"""Callers to report."""
OFFSET = re.compile(r"Kernel Offset: (0x[0-9a-f]+) from 0x[0-9a-f]+")
"""The text of a panic under KASLR (dump_kernel_offset() of the architectures)."""
ENABLED = "KASLR enabled"
"""The text of an arm64 boot."""
BOOTING = {"kernel_init", "start_kernel", "x86_64_start_kernel", "i386_start_kernel"}
"""The outermost functions of the stacks that a kernel boots on."""
WARN = "WARN"
TRIPLE = "triple fault: the processor shut down"
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Ending:
    """An end: lines to say of it, and the exit code."""

    lines: list[str]
    code: int


def explain_end(
    kernel: Image, source: Source, ended: Progress, folder: Path, *, rooted: bool
) -> Ending:
    """Explain the end of a run in ``folder``; ``rooted``: the kernel had been given a root file
    system. An oops, a panic, a hang, or a WARN that was to end it, exits with 1."""
    words = read_console(folder / "console", shared=source.shares_console)
    triple = fault_in(source.tracer.emulator, folder / "log")
    what = WARN if ended.warned else words.headline or (TRIPLE if triple else "")
    place = words.warning if ended.warned else words.place
    if ended.idle and not what:
        what = "hang"
    said = []
    bad = bool(what or ended.fault)
    if words.root and not rooted and not ended.warned:
        said.append("the kernel was given no root file system, and ended with the panic for it")
        bad = False
    elif ended.stopped and not ended.fault:
        return Ending([], 0)
    elif bad:
        said += _located(kernel, source, what or "fault", place, ended, folder)
    names = names_at(kernel, list(ended.last)[-FUNCTIONS:])
    if names or source.hooked is None:
        said.append(f"last functions: {', '.join(names) or 'none'}")
    if not ended.warned and (ended.marked or words.warning.text):
        where = f", the first at {words.warning.text}" if words.warning.text else ""
        said.append(f"{max(ended.marked, 1)} WARN{'s' * (ended.marked > 1)}{where}")
    said += _kaslr(words)
    if not words.lines:
        said.append("the kernel printed nothing")
    if source.mark.in_memory and not ended.events and not words.lines:
        said.append(f"no event came by memory; try --sink {source.tracer.sinks[0]}")
    if not place.text:
        said += [f"last console output: {line}" for line in words.lines[-LINES:]]
    return Ending(said, int(Exit.FOUND) if bad else ended.exit_code)


def names_at(kernel: Image, at: list[int]) -> list[str]:
    """Name the functions at some addresses."""
    return [name for name, _, _ in kernel.kallsyms.lookup(addresses(*at))] if at else []


def _located(
    kernel: Image, source: Source, what: str, told: Place, ended: Progress, folder: Path
) -> list[str]:
    """The place of a fault, as far as the console ``told`` it, and the calls that led there. Where
    interrupts went on behind a hang, these are the calls when there was something new for the last
    time."""
    behind = ended.events - ended.first if ended.idle else 0
    events = latest_events(folder / "stream", source, behind)
    chains: list[list[str]] = []
    if events is not None:
        rows = latest_chains(events, source, kernel)
        again = latest_events(folder / "stream", source) if behind else None
        if again is not None:
            rows = _stuck(rows, events, again.take(slice(-behind, None)), source, kernel)
        ip = source.ip_of(events)
        chains = [names_at(kernel, ip[chain].tolist()) for chain in rows]
    calls = chains[0] if chains else []
    last = int(ended.last[-1]) if ended.last else 0
    if behind and calls:
        last = kernel.symbols.find(calls[0]) or last
    start = kernel.symbols.find(told.function) if told.function else None
    at = start + told.offset if start is not None else None
    if told.function:
        inside = [chain for chain in chains if told.function in chain]
        if inside:
            calls = inside[0][inside[0].index(told.function) :]
    elif ended.fault and events is not None and events.back is not None:
        at = source.at + int(events.back[-1]) - 1  # the call of panic()
        calls = calls[1:]
    elif calls:
        at = last
    # The processor tells no place of a triple fault.
    by = "after entering" if what == TRIPLE else "in"
    place = f"{what} {by} {_place(kernel, at)}" if at is not None else what
    said = [place]
    if told.text:
        said.append(f"console: {told.text}")
    if calls:
        said.append(f"calls: {_chain(calls)}")
    boots = next((chain for chain in chains if BOOTING.intersection(chain)), [])
    if what == TRIPLE and boots and boots != calls:  # interrupts may have a stack of their own
        said.append(f"before them, on another stack: {_chain(boots)}")
    return said


def _chain(calls: list[str]) -> str:
    return " < ".join(calls[:DEEP]) + " < ..." * (len(calls) > DEEP)


def _stuck(
    chains: list[Rows], events: Events, again: Events, source: Source, kernel: Image
) -> list[Rows]:
    """Of the stacks that ran, those that boot the kernel; of their calls, those that had not ended
    by the events that came ``again`` and again, nor are of the same functions: interrupts, the
    scheduler. Only stacks with calls left."""
    ip, repeated = source.ip_of(events), np.unique(source.ip_of(again))
    booting = np.unique(ip[np.concatenate([*chains, np.empty(0, np.int64)])])
    booting = booting[np.isin(names_at(kernel, booting.tolist()), list(BOOTING))]
    left = []
    for chain in [chain for chain in chains if np.isin(ip[chain], booting).any()] or chains:
        behind = stack_numbers(again.sp, source) == stack_numbers(events.sp[chain[:1]], source)
        ended = events.sp[chain] <= again.sp[behind].max(initial=0)
        gone = np.flatnonzero(ended | np.isin(ip[chain], repeated))
        left.append(chain[gone[-1] + 1 :] if len(gone) else chain)
    return [chain for chain in left if len(chain)]


def _place(kernel: Image, at: int) -> str:
    """``function+0x12, file.c:34``, without the latter if there is no line information."""
    ((name, offset, _),) = kernel.kallsyms.lookup(addresses(at))
    place = f"{name}+{offset:#x}" if name else f"{at:#x}"
    try:
        (line,) = Lines(kernel.path).places(addresses(at))
    except FtpatchError:
        line = ""
    return f"{place}, {line}" if line else place


def _kaslr(words: Words) -> list[str]:
    """Explain the console's addresses under KASLR: those of events and reports are the image's."""
    for line in reversed(words.lines):
        if moved := OFFSET.search(line):
            return [f"KASLR: console addresses are {moved[1]} above the image's"]
    if any(ENABLED in line for line in words.lines):
        return ["KASLR: console addresses differ from the image's; use --append nokaslr"]
    return []
