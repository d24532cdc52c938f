# SPDX-License-Identifier: MIT
"""One traced boot: a kernel patched, run under QEMU, and watched until it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ftpatch.api.boot_watching import accesses_of, recorder_of, require_stub_free, watched_in
from ftpatch.errors import FtpatchError, Refused, SiteRefused, UsageError
from ftpatch.io.cleanup import CLEANUP

if TYPE_CHECKING:
    from ftpatch.boot import Source
    from ftpatch.boot.access_events import BootAccesses
    from ftpatch.boot.ending import Ending
    from ftpatch.boot.feed import Feed
    from ftpatch.boot.machine import Machine, Progress
    from ftpatch.boot.plan import BootTracing
    from ftpatch.ftrace.filter import Selection
    from ftpatch.ftrace.plan import Plan
    from ftpatch.ftrace.sites import Sites
    from ftpatch.image import Image

__all__ = ["BootWords", "Booted", "boot_kernel"]

ROOTS = ("root=", "init=", "rdinit=", "nfsroot=")
"""Words by which a kernel is told of a root file system."""
Watch = Callable[["Machine", "Image", Iterator["Progress"]], "Progress"]
"""Watches a machine to its end; the last progress."""


@dataclass(frozen=True, kw_only=True)
class BootWords:
    """The options of ``boot``: sites and tracer, text for the kernel's command line, words for
    QEMU; seconds that it may run, and that it may do nothing; how many events to keep, the ``last``
    ones (0: all); whether recording stops at a WARN as it does at an oops, a BUG and a panic;
    variables to watch (``watches``); ``probes``, beside which no site is traced unless the
    selection names it."""

    selection: Selection
    tracing: BootTracing
    append: Sequence[str] = ()
    words: Sequence[str] = ()
    limit: float = 600
    idle: float = 60
    last: int = 0
    stop_on_warn: bool = False
    watches: Sequence[str] = ()
    probes: Sequence[str] = ()


@dataclass(frozen=True)
class Booted:
    """A boot that has ended: the patched kernel, the folder with its stream and console, whether
    it was given a root file system (``rooted``), accesses to variables if they were watched."""

    kernel: Image
    source: Source
    folder: Path
    ended: Progress
    rooted: bool = False
    accesses: BootAccesses | None = None

    @property
    def stream(self) -> Path:
        """Its events."""
        return self.folder / "stream"

    @property
    def console(self) -> Path:
        """The file of what it printed; it may be missing."""
        return self.folder / "console"

    @cached_property
    def ending(self) -> Ending:
        """Lines to say of the end, none if it was the tracer's, and the exit code."""
        from ftpatch.boot.ending import explain_end

        return explain_end(self.kernel, self.source, self.ended, self.folder, rooted=self.rooted)


def to_the_end(machine: Machine, kernel: Image, steps: Iterator[Progress]) -> Progress:
    """Wait, and do nothing else."""
    *_, last = steps
    return last


def boot_kernel(path: Path, folder: Path, words: BootWords, watch: Watch = to_the_end) -> Booted:
    """Insert the tracer into a copy of the kernel in ``folder``, and boot it there. Raises what
    planning raises, SiteRefused, and UsageError where QEMU is not installed."""
    tracing = replace(words.tracing, live=True)
    patched = folder / "vmlinux.boot"
    inside = _taken_out(path, folder / "vmlinux")
    append = " ".join(words.append)
    try:
        if words.watches:
            from ftpatch.image import open_image

            append = require_stub_free(words.words, append)
            watched = watched_in(open_image(inside), words.watches)
        kernel, ring = _patch(inside, patched, words, tracing)
    except FtpatchError as error:
        place = str(path) if error.path == str(inside) else error.path
        raise type(error)(place, error.reason, error.hint) from None
    from ftpatch.boot import find_source
    from ftpatch.boot.faults import FAULTS, WARNINGS, reporting
    from ftpatch.boot.machine import Machine, Rules, flat, qemu_command

    source = find_source(kernel)
    whole = flat(kernel) if source.tracer.emulator.flat else b""
    if whole:
        patched = folder / "Image"
        patched.write_bytes(whole)
    feed = _feed_of(source, folder / "stream", words, path, (kernel, whole, ring))
    files = {name: str(folder / name) for name in ("console", "log")} | {"stream": feed.sent}
    qemu = [*qemu_command(patched, source, files, append, words.words), *feed.words]
    recorder = None
    if words.watches:
        recorder = recorder_of(source.tracer.name, watched, feed.sent_events)
        qemu += recorder.words
    # A probe there sends all of its hit; the console tells of the fault.
    stops = reporting(source.ip, kernel.symbols, FAULTS) & ~source.hooks
    marks = reporting(source.ip, kernel.symbols, WARNINGS) & ~source.hooks
    rules = Rules(
        most=tracing.most or 0,
        limit=words.limit,
        idle=words.idle,
        stops=source.places[stops | marks if words.stop_on_warn else stops],
        marks=source.places[marks],
    )
    pipes = recorder.files if recorder else ()
    with Machine(qemu, feed, folder / "console", pipes) as machine:
        if recorder:
            recorder.start()
        ended = watch(machine, kernel, machine.watch(source, rules))
    rooted = "-initrd" in words.words or any(word.startswith(ROOTS) for word in append.split())
    if recorder is None:
        return Booted(kernel, source, folder, ended, rooted)
    recorder.finish()
    found = accesses_of(kernel, source.tracer.name, recorder)
    return Booted(kernel, source, folder, ended, rooted, found)


def _taken_out(path: Path, inside: Path) -> Path:
    """Write the kernel in a bzImage, a zboot image or a compressed file to ``inside``; return where
    the kernel is that is to be patched."""
    from ftpatch.image import open_image

    image = open_image(path)
    if not image.layers or image.blocks:  # a changed one is refused as such
        return path
    inside.write_bytes(image.data.data)
    return inside


def _feed_of(
    source: Source, stream: Path, words: BootWords, path: Path, held: tuple[Image, bytes, int]
) -> Feed:
    """Choose by the tracer's sink where events are read from: the machine's memory, or the file
    that QEMU writes. ``held``: the kernel, what QEMU gets if that is flat, and where its ring is.
    Raises UsageError, for ``path``, if its memory ends below the ring."""
    from ftpatch.boot.feed import FileFeed, MemoryFeed
    from ftpatch.boot.guest_memory import memory_size, offset_in_memory

    if not source.mark.in_memory:
        return FileFeed(source, stream, words.last)
    memory = memory_size(source.tracer.emulator, words.words)
    at = offset_in_memory(*held)
    if at >= memory:
        raise UsageError(path, f"{memory >> 20} MiB of memory do not hold it", "use -- -m 1G")
    return MemoryFeed(source, stream, memory, at, words.last)


def _patch(path: Path, patched: Path, words: BootWords, tracing: BootTracing) -> tuple[Image, int]:
    """Insert the tracer and probes into a copy, and open that; where its word is if a ring is below
    it."""
    import numpy as np

    from ftpatch.api.boot_probing import hooks_in
    from ftpatch.arch import supports
    from ftpatch.arch.boot import boot_tracer_of
    from ftpatch.boot.machine import require_emulator
    from ftpatch.boot.padding import find_ring
    from ftpatch.boot.plan import plan_boot
    from ftpatch.ftrace.filter import select_sites
    from ftpatch.image import open_image
    from ftpatch.io.output import Copy
    from ftpatch.update.update import prepare, update

    ring = 0

    def plan(sites: Sites) -> Plan:
        nonlocal ring
        ring = find_ring(sites)
        if supports(sites.arch.name, "boot"):
            require_emulator(boot_tracer_of(sites.arch.name).emulator)
        selection, refused = words.selection, Refused()
        if not words.probes:
            return plan_boot(sites, select_sites(sites, selection), tracing)
        hooks = hooks_in(sites, words.probes, refused)
        if refused.errors:
            raise refused.errors[0]
        chosen = select_sites(sites, selection) if selection.filters else np.zeros(len(sites), bool)
        return plan_boot(sites, chosen, tracing, hooks)

    with Copy(path, patched, force=False, allow_setuid=True, in_place=False, sync=False) as copy:
        prepared = prepare(path, plan, strip_signature=True)
        if prepared.refused:
            bug, reason = prepared.refused[0]
            more = f" (and {len(prepared.refused) - 1} more sites)" * (len(prepared.refused) > 1)
            raise SiteRefused(path, f"{bug.place}: {reason}{more}")
        update(copy, prepared)
    CLEANUP.appeared = False  # the copy is not what was asked for
    return open_image(patched), ring
