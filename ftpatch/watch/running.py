# SPDX-License-Identifier: MIT
"""Watched variables of a running process: nothing in it is stopped or changed.

The kernel sets the processor's breakpoints for each thread, and runs a BPF program of ours at each
access. Both belong to descriptors of ftpatch, and go with them.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np

from ftpatch.arch import Arch, arch_of
from ftpatch.arch.breakpoints import Breakpoints, breakpoints_of
from ftpatch.core.byte_order import NATIVE
from ftpatch.core.token import Token
from ftpatch.errors import InputError, UsageError
from ftpatch.image.injected import image_id, laid_in_id
from ftpatch.inject.runtime_steps import Row
from ftpatch.names.suggest import meant, near
from ftpatch.process.bpf import RECORD, STACKED, load_program, make_ring
from ftpatch.process.loaded import Loaded
from ftpatch.process.memory import memory_file, opened_memory
from ftpatch.process.perf import Breakpoint, Events
from ftpatch.process.process import Process, read_status
from ftpatch.process.refusals import elf_kind
from ftpatch.process.ring import Ring
from ftpatch.trace.mapped import Mapped
from ftpatch.watch import Request, Watch, apply_requests, readable, watch_line
from ftpatch.watch.filtering import Filtering
from ftpatch.watch.homes import slots_of
from ftpatch.watch.plan import part_notes
from ftpatch.watch.recorder import Recorder, mark_of
from ftpatch.watch.table import SLOTS, TYPES, pack_watches
from ftpatch.watch.trace_file import Traced
from ftpatch.watch.trace_watches import reason_of
from ftpatch.watch.variables import Variables

__all__ = ["Chosen", "Watching", "choose_watches"]

RING: Final = 8 << 20
"""Bytes of the ring: 170,000 accesses between two looks."""
STACKS_RING: Final = 32 << 20
"""The same where some have stacks: 4,000 accesses."""
OWN: Final = Path("/proc/self/exe")
WORD: Final = 8
"""Bytes of an address."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The variables to watch: ``watches`` of the images ``loaded``, the program first, by its link
    addresses, as if all were of it; ``notes`` on them, and on those that are not just a variable
    (``partial``)."""

    loaded: Sequence[Loaded]
    watches: tuple[Watch, ...]
    notes: tuple[str, ...]
    partial: tuple[str, ...]
    kind: Breakpoints

    @property
    def program(self) -> Loaded:
        """The program."""
        return self.loaded[0]


def choose_watches(loaded: Sequence[Loaded], requests: Sequence[Request]) -> Chosen:
    """Find the variables of a process's program and libraries. Raises UsageError for what cannot be
    watched, and InputError for a process of another kind than the machine's own."""
    program = loaded[0]
    kind = _kind(program)
    owners = {one.library: _owner(loaded, one.library) for one in requests}
    known = {name: Variables(one.file) for name, one in owners.items()}
    spelled = [known[one.library].asked(one) for one in requests]
    places = {one.place: one for one in spelled}
    starts, others = dict[str, int](), dict[str, Loaded | None]()
    arch = arch_of(program.file.elf.skeleton.machine, program.file.elf.skeleton.elf_class)
    assert arch is not None

    def resolve(place: str) -> tuple[int, int]:
        one, owner = places[place], owners[places[place].library]
        address, size = known[one.library].resolve(one.symbol)
        starts[place] = address
        held = owner.above(address)
        used = _used_address(owner, address, arch) if owner is not program else None
        if used not in (None, held):
            others[place] = next((image for image in loaded if _is_in(image, used)), None)
            held = used
        return (held - program.bias) % (1 << 64), size

    filtering = Filtering(program.file)

    def filtered(text: Token, watch: Watch) -> tuple[Row, ...]:
        return filtering.rows(text, watch, known[watch.library])

    try:
        watches, notes = apply_requests(
            (), spelled, slots=SLOTS, resolve=resolve, read_only=False, filtered=filtered
        )
        pack_watches(watches, NATIVE)  # their names are not too long
    except UsageError as error:
        raise UsageError(error.path or program.path, error.reason, error.hint) from None
    if not watches:
        raise UsageError(program.path, "nothing to watch", "specify a watch, such as counter:rw-")
    partial = list[str]()
    for watch in watches:
        line, owner = watch_line(readable(watch)), owners[watch.library]
        place = f"{watch.library}:{watch.symbol}" if watch.library else watch.symbol
        own = replace(watch, address=starts[place] + watch.offset)
        variables = known[watch.library]
        if not variables.has(own.address, own.length):
            raise UsageError(
                owner.path, f"{line}: it ends beyond the address space", "watch fewer bytes"
            )
        if own.type == "-w-" and variables.never_written(own.address):
            notes.append(f"{line}: the variable is constant, the program cannot write it")
        if place in others:
            image = others[place]
            whose = "another variable" if image is None else f"the one of {image.path.name}"
            notes.append(f"{line}: the library uses {whose}, which is watched")
        partial += part_notes(variables, [own])
    return Chosen(
        loaded=loaded, watches=watches, notes=tuple(notes), partial=tuple(partial), kind=kind
    )


def _used_address(library: Loaded, address: int, arch: Arch) -> int | None:
    """Find the address in memory of the variable that a library has at a link address; None if it
    has no slot for it: then the variable is its own. Raises InputError for memory that cannot be
    read."""
    relocations = library.file.relocations
    with opened_memory(library.process, library.mappings) as memory:
        for row in slots_of(library.file, address, arch):
            held, there = memory.read(library.above(int(relocations.place[row])), WORD)
            if there.all():
                bound = NATIVE.integer(held)
                return (bound - int(relocations.addend[row])) % (1 << 64)
    return None


def _is_in(image: Loaded, address: int) -> bool:
    """Test whether an address in memory is one of an image."""
    link = np.array([(address - image.bias) % (1 << 64)], np.uint64)
    return bool(image.file.elf.in_memory(link)[0])


def _owner(loaded: Sequence[Loaded], library: str) -> Loaded:
    """The image that a request is about. Raises UsageError for a library that is not there, or
    there twice."""
    if not library:
        return loaded[0]
    found = [one for one in loaded if library in one.names]
    if len(found) == 1:
        return found[0]
    known = {one.path.name for one in loaded}
    reason = f"no library {library!r} is loaded"
    hint = meant(near(library, known), "see `ftpatch status -v --pid`")
    if found:
        paths = sorted({str(one.path) for one in found})
        reason = f"{library!r} is loaded {len(found)} times"
        hint = f"use its path: {', '.join(paths)}" if len(paths) > 1 else "use a debugger"
    raise UsageError(loaded[0].path, reason, hint)


class Watching:
    """Watches the variables ``chosen`` in all threads of a process, from ``begin`` on; a context,
    at whose end nothing is left. ``lines`` are the watches as written."""

    def __init__(self, process: Process, chosen: Chosen) -> None:
        self._process, self._chosen = process, chosen
        self._held = contextlib.ExitStack()
        self._events = Events(chosen.kind.perf_event_open)
        self._values: list[int] = []
        self._ring: Ring | None = None
        self._recorder: Recorder | None = None
        self.lines = [watch_line(readable(one)) for one in chosen.watches]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._held.close()

    @property
    def threads(self) -> int:
        """Threads in which the breakpoints were set; those that they make have them as well."""
        return self._events.threads

    @property
    def complete(self) -> bool:
        """False where threads began faster than they could be watched."""
        return self._events.complete

    @property
    def recorded(self) -> int:
        """Accesses written so far."""
        return self._recorder.recorded if self._recorder else 0

    def begin(self) -> None:
        """Set the breakpoints. Raises InputError for what the kernel refuses: then none is set."""
        kind, bias = self._chosen.kind, self._chosen.program.above
        watches = self._chosen.watches
        stacked = any(one.stack for one in watches)
        record, size = (STACKED, STACKS_RING) if stacked else (RECORD, RING)
        try:
            fd = make_ring(kind.bpf, size)
        except OSError as error:
            raise self._no_programs(error) from None
        self._ring = Ring(fd, size, record)
        self._held.callback(self._ring.close)
        wanted = [
            Breakpoint(address=bias(one.address), length=one.length, type=TYPES[one.type])
            for one in watches
        ]
        programs: list[int] = []

        def of_mark(mark: int) -> Sequence[int]:
            try:
                for number, one in enumerate(wanted):
                    program = load_program(
                        kind.bpf,
                        fd,
                        address=one.address,
                        length=one.length,
                        mark=mark_of(number, mark),
                        ip=kind.ip,
                        size=record.itemsize,
                        stack=kind.general if watches[number].stack else (),
                        pointer=kind.stack,
                    )
                    self._held.callback(os.close, program)
                    programs.append(program)
            except OSError as error:
                raise self._no_programs(error) from None
            return programs[-len(wanted) :]

        self._held.callback(self._events.close)
        self._events.place(self._process, wanted, of_mark, self._refused)
        self._values = [self._value(one) for one in wanted]
        self._events.begin()

    def record(self, path: Path, size: int) -> None:
        """Write to a trace file of at most ``size`` bytes from now on. Raises OSError."""
        traced = _traced(self._process, self._chosen)
        self._recorder = Recorder(path, traced, size=size, values=self._values)

    def look(self) -> None:
        """Write what has been recorded since. Raises OSError."""
        assert self._ring is not None and self._recorder is not None
        self._recorder.add(self._ring.take())

    def finish(self) -> list[Path]:
        """End, and name the trace files, the process's own first. Raises OSError."""
        counted = self._events.stop()
        self.look()
        assert self._recorder is not None
        self._recorder.finish(counted)
        return self._recorder.paths

    def _value(self, one: Breakpoint) -> int:
        """A variable's value before anything is recorded."""
        with memory_file(self._process, os.O_RDONLY) as fd:
            try:
                return NATIVE.integer(os.pread(fd, one.length, one.address))
            except (OSError, OverflowError):
                return 0

    def _refused(self, number: int, error: OSError) -> InputError:
        code = error.errno or 0
        return InputError(
            None,
            f"{self._process}: {self.lines[number]}: not watched: errno {code}, {reason_of(code)}",
        )

    def _no_programs(self, error: OSError) -> InputError:
        if error.errno in (errno.EPERM, errno.EACCES):
            return InputError(
                None,
                f"{self._process}: this user may not load the BPF programs that read the values",
                "run as root, or with CAP_BPF and CAP_PERFMON",
            )
        return InputError(
            None, f"{self._process}: no BPF programs: {error.strerror}", "Linux 5.13 has them"
        )


def _kind(program: Loaded) -> Breakpoints:
    """The breakpoints of a process. Raises InputError for one of another kind than the machine's
    own, or without."""
    skeleton = program.file.elf.skeleton
    bits = skeleton.elf_class
    kind = skeleton.machine, bits
    arch = arch_of(*kind)
    if kind != elf_kind(OWN):
        what = "a 32-bit process" if bits == 32 else "a process of another architecture"
        raise InputError(
            None,
            f"{program.process}: {what}",
            "only those of the machine's own kind can be watched",
        )
    if arch is None:
        raise InputError(None, f"{program.process}: its architecture is not supported")
    return breakpoints_of(arch.name)


def _traced(process: Process, chosen: Chosen) -> Traced:
    program = chosen.program
    image, path = program.file, program.path
    exe = process.place / "exe"
    with contextlib.suppress(OSError):
        if not path.samefile(exe):
            path = exe  # with another root, or a replaced file, there is only what the kernel has
    if not path.exists():
        path = exe
    return Traced(
        pid=process.pid,
        ppid=int(read_status(process.place).get("PPid", 0)),
        comm=process.name,
        image=path,
        image_id=laid_in_id(image) or image_id(image),
        machine=image.elf.skeleton.machine,
        bias=program.bias,
        objects=[_mapped(one) for one in chosen.loaded[1:]],
        watches=chosen.watches,
        pointer=chosen.kind.stack,
    )


def _mapped(library: Loaded) -> Mapped:
    """A library, of which the trace tells where its code is."""
    low, high = library.span
    base = low - library.bias
    return Mapped(
        start=0,
        size=high - low,
        base=base,
        bias=library.bias,
        image_id=b"",
        path=str(library.path),
    )
