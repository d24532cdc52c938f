# SPDX-License-Identifier: MIT
"""Watches on a kernel's variables while it boots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ftpatch.errors import UsageError

if TYPE_CHECKING:
    from ftpatch.boot.access_events import BootAccesses
    from ftpatch.boot.watchpoints import AccessRecorder, Watched
    from ftpatch.image import Image

__all__ = ["accesses_of", "recorder_of", "require_stub_free", "watched_in"]

STUB = ("-s", "--s", "-gdb", "--gdb")
"""QEMU's words for its gdb stub, of which it has one."""
FIXED = "nokaslr"
"""The kernel's word for link addresses: watchpoints are set before it could say otherwise."""


def require_stub_free(words: Sequence[str], append: str) -> str:
    """Return the kernel's command line with what watches need. Raises UsageError where QEMU's
    ``words`` use its gdb stub."""
    used = next((word for word in words if word in STUB), None)
    if used is not None:
        raise UsageError(None, f"--watch uses QEMU's gdb stub, and so does {used}", "remove one")
    return append if FIXED in append.split() else f"{append} {FIXED}".strip()


def watched_in(image: Image, texts: Sequence[str]) -> list[Watched]:
    """Find the variables of a kernel that are to be watched. Raises UsageError."""
    from ftpatch.boot.watchpoints import Watched
    from ftpatch.watch import readable, watch_line
    from ftpatch.watch.kernel_watches import kernel_watches
    from ftpatch.watch.variables import Variables

    variables = Variables(image)
    return [
        Watched(
            line=watch_line(readable(one)),
            symbol=one.symbol,
            offset=one.offset,
            size=variables.size(one),
            address=one.address,
            length=one.length,
            reads="r" in one.type,
            writes="w" in one.type,
            initial=_initial(image, one.address, one.length),
        )
        for one in kernel_watches(image, texts)
    ]


def recorder_of(arch: str, watched: Sequence[Watched], events: Callable[[], int]) -> AccessRecorder:
    """Record accesses on an architecture; ``events`` counts those of the boot tracer. Raises
    InputError if it is not supported there."""
    from ftpatch.arch.gdb_stub import gdb_stub_of
    from ftpatch.boot.watchpoints import AccessRecorder

    return AccessRecorder(watched, gdb_stub_of(arch), events)


def accesses_of(kernel: Image, arch: str, recorder: AccessRecorder) -> BootAccesses:
    """Give what was recorded to reports."""
    from ftpatch.arch.gdb_stub import gdb_stub_of
    from ftpatch.boot.access_events import BootAccesses

    before = gdb_stub_of(arch).before
    return BootAccesses(kernel, arch, recorder.watched, recorder.accesses, before=before)


def _initial(image: Image, address: int, length: int) -> int:
    """The value in the image; 0 where the file has none."""
    from ftpatch.core.columns import addresses

    held, there = image.elf.gather(image.elf.offset_of(addresses(address)), length)
    return int.from_bytes(held[0].tobytes(), "little") if there[0] else 0
