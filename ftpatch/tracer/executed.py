# SPDX-License-Identifier: MIT
"""A tracer for a program that a traced process has started: planned as for a running one, brought
in before anything of it has run. Where libraries are to be traced, the dynamic linker is hooked,
and the tracer comes when it has mapped them (bring_asking.py).

    exec | area mapped | AT_ENTRY: the area | sites call | dynamic linker | trace_start | program
         '------------ held ----------------------------'
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ftpatch.arch import arch_named
from ftpatch.core.byte_order import NATIVE
from ftpatch.elf.headers import Segment
from ftpatch.elf.segments import header_field
from ftpatch.errors import FtpatchError, InputError, NoTable, UsageError
from ftpatch.ftrace.filter import Selection, expand, select_sites
from ftpatch.image.injected import laid_in_at
from ftpatch.process.held import Held
from ftpatch.process.loaded import loaded_images
from ftpatch.process.maps import read_maps
from ftpatch.process.memory_target import writable_memory
from ftpatch.process.page_ends import paddings_of
from ftpatch.process.process import Process, read_status
from ftpatch.process.refusals import require_may_stop
from ftpatch.tracer.attach import Chosen, plan_attached
from ftpatch.tracer.later import Later
from ftpatch.tracer.plan import Tracing, traceable

__all__ = ["Executed"]

AT_SECURE: Final = 23
WORD: Final = 8
FILTERS: Final = "Seccomp_filters"
"""Line of /proc/PID/status: their number (Linux 5.9)."""


@dataclass(kw_only=True)
class Executed:
    """A tracer for each program that is started. ``environment`` as in one that starts with its
    runtime. ``missing``: filters that have matched nothing in any program, None if there was
    none; ``untraced``: files of programs that have sites, and why they were left alone."""

    tracing: Tracing
    selection: Selection
    environment: dict[str, str] = field(default_factory=dict)
    later: Later | None = None
    missing: set[str] | None = None
    untraced: dict[Path, str] = field(default_factory=dict)
    _bare: set[tuple[int, ...]] = field(default_factory=set)

    def start(self, process: Process, arch: str) -> bool:
        """Bring the tracer into a process that the calling thread holds as it starts a program; say
        whether it is to stay stopped, as all of its process is. A program that cannot be traced is
        left alone. Raises Ended."""
        held: Held | None = None
        try:
            key = _key(process)
            if key in self._bare:
                return False
            require_may_stop(process)
            held = Held(process, arch)
            if not self._started(process, held, arch):
                self._bare.add(key)
        except NoTable:
            self._bare.add(key)
        except FtpatchError as error:
            path = Path(error.path or _exe(process))
            self.untraced.setdefault(path, f"{error.reason}; {error.hint}".removesuffix("; "))
        return held is not None and held.group_stop

    def _started(self, process: Process, held: Held, arch: str) -> bool:
        """Bring it in; False for a program without sites to be traced."""
        loaded, errors = loaded_images(process)
        if not loaded or loaded[0].path != Path(_exe(process)):
            raise errors[0] if errors else InputError(_exe(process), "cannot be read")
        program = loaded[0]
        if laid_in_at(program.file) is not None:
            if self.later is not None:  # it records by itself
                self.later.hook(held, loaded, arch_named(arch))
            return True
        linked = program.file.elf.segment(Segment.PT_INTERP) is not None
        if self.later is not None and linked and program.file.is_program:
            _require_permitted(process, program.path)
            if self.later.hook(held, loaded, arch_named(arch)):
                return True
        if not program.file.is_program or not len(program.sites_of_file):
            return False
        missing = set[str]()
        mask = select_sites(program.sites, expand(self.selection), missing)
        self.missing = missing if self.missing is None else self.missing & missing
        if not mask.any():
            return False
        chosen = Chosen(loaded=program, mask=traceable(program.sites, mask, libraries=False))
        if not chosen.mask.any():
            return False
        _require_permitted(process, program.path)
        plan = plan_attached(
            process, loaded, [chosen], read_maps(process), self.tracing, self.environment
        )
        entry = program.above(header_field(program.file.elf, "e_entry"))
        with writable_memory(process) as target:
            place = held.map(target, plan.areas[0], paddings_of(loaded))
            target.write(place, held.begin([plan.start], entry))
            there, whole = target.held(plan.calls.changes)
            if not whole.all() or (there != plan.calls.changes.old).any():
                raise InputError(program.path, "its code in memory is not that of the file")
            held.start_at(target, place, linked=linked)
            target.apply(plan.calls.changes)
        return True


def _exe(process: Process) -> str:
    try:
        return str((process.place / "exe").readlink())
    except OSError:
        return str(process)


def _key(process: Process) -> tuple[int, ...]:
    """Tells the file that a process runs from others, and from itself with other contents."""
    try:
        found = os.stat(process.place / "exe")  # noqa: PTH116 - of what the link leads to
    except OSError:
        raise InputError(None, f"{process}: it has ended") from None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _require_permitted(process: Process, path: Path) -> None:
    """Raise UsageError for a program with more privileges than its user, and for one under more
    seccomp filters than ftpatch itself: the tracer's system calls may be forbidden."""
    try:
        words = (process.place / "auxv").read_bytes()
    except OSError as error:
        raise InputError(path, f"cannot be traced: {error.strerror}") from None
    pairs = [NATIVE.integer(words[at : at + WORD]) for at in range(0, len(words), WORD)]
    if dict(zip(pairs[::2], pairs[1::2], strict=False)).get(AT_SECURE):
        raise UsageError(path, "it was started with privileges of its own (setuid, capabilities)")
    filters, own = (
        read_status(one).get(FILTERS, "0") for one in (process.place, Path("/proc/self"))
    )
    if int(filters) > int(own):
        raise UsageError(path, "it was started under a seccomp filter")
