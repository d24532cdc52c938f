# SPDX-License-Identifier: MIT
"""One traced boot: a kernel patched, run under QEMU, and watched until it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ftpatch.errors import SiteRefused
from ftpatch.io.cleanup import CLEANUP

if TYPE_CHECKING:
    from ftpatch.boot import Source
    from ftpatch.boot.machine import Machine, Progress
    from ftpatch.boot.plan import BootTracing
    from ftpatch.ftrace.filter import Selection
    from ftpatch.ftrace.plan import Plan
    from ftpatch.ftrace.sites import Sites
    from ftpatch.image import Image

__all__ = ["BootWords", "Booted", "boot_kernel"]

Watch = Callable[["Machine", "Image", Iterator["Progress"]], "Progress"]
"""Watches a machine to its end; the last progress."""


@dataclass(frozen=True, kw_only=True)
class BootWords:
    """The options of ``boot``: sites and tracer, text for the kernel's command line, words for
    QEMU; seconds that it may run, and that it may do nothing."""

    selection: Selection
    tracing: BootTracing
    append: Sequence[str] = ()
    words: Sequence[str] = ()
    limit: float = 600
    idle: float = 60


@dataclass(frozen=True)
class Booted:
    """A boot that has ended: the patched kernel, and the folder with its stream and console."""

    kernel: Image
    source: Source
    folder: Path
    ended: Progress

    @property
    def stream(self) -> Path:
        """Its events."""
        return self.folder / "stream"

    @property
    def console(self) -> Path:
        """The file of what it printed; it may be missing."""
        return self.folder / "console"

    def explained(self) -> list[str]:
        """Explain, line by line, an end that was not the tracer's; nothing for that."""
        from ftpatch.boot.ending import explain_end

        if self.ended.stopped:
            return []
        return explain_end(self.kernel, self.source, self.ended, self.folder)


def to_the_end(machine: Machine, kernel: Image, steps: Iterator[Progress]) -> Progress:
    """Wait, and do nothing else."""
    *_, last = steps
    return last


def boot_kernel(path: Path, folder: Path, words: BootWords, watch: Watch = to_the_end) -> Booted:
    """Insert the tracer into a copy of the kernel in ``folder``, and boot it there. Raises what
    planning raises, SiteRefused, and UsageError where QEMU is not installed."""
    kernel = _patch(path, folder / "vmlinux.boot", words.selection, words.tracing)
    from ftpatch.boot import find_source
    from ftpatch.boot.machine import Machine, qemu_command

    source = find_source(kernel)
    qemu = qemu_command(kernel, source, folder, " ".join(words.append), words.words)
    with Machine(qemu, folder / "stream", folder / "console") as machine:
        steps = machine.watch(source, words.tracing.most or 0, words.limit, words.idle)
        ended = watch(machine, kernel, steps)
    return Booted(kernel, source, folder, ended)


def _patch(path: Path, patched: Path, selection: Selection, tracing: BootTracing) -> Image:
    """Insert the tracer into a copy, and open that."""
    from ftpatch.arch import supports
    from ftpatch.arch.boot import boot_tracer_of
    from ftpatch.boot.machine import require_emulator
    from ftpatch.boot.plan import plan_boot
    from ftpatch.ftrace.filter import select_sites
    from ftpatch.image import open_image
    from ftpatch.io.output import Copy
    from ftpatch.update.update import prepare, update

    def plan(sites: Sites) -> Plan:
        if supports(sites.arch.name, "boot"):
            require_emulator(boot_tracer_of(sites.arch.name).emulator)
        return plan_boot(sites, select_sites(sites, selection), tracing)

    with Copy(path, patched, force=False, allow_setuid=True, in_place=False, sync=False) as copy:
        prepared = prepare(path, plan, strip_signature=False)
        if prepared.refused:
            bug, reason = prepared.refused[0]
            more = f" (and {len(prepared.refused) - 1} more sites)" * (len(prepared.refused) > 1)
            raise SiteRefused(path, f"{bug.place}: {reason}{more}")
        update(copy, prepared)
    CLEANUP.appeared = False  # the copy is not what was asked for
    return open_image(patched)
