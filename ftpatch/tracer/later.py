# SPDX-License-Identifier: MIT
"""Shared libraries that a traced program opens later: patched in memory when the dynamic linker has
mapped them, to call the tracer in the program's copy. In a program that is followed there is none
yet when the linker asks for the first time: it is brought in then, as into a running process.

    program    | stub_config | struct process | hooks, biases |
    table      | struct library ... | zeros         its own, until the first one is added
    header     | trace_library ... |                of the process's trace file
    library    | sites ...  | area: its stub, which calls the runtime |

All that is known of them is in the process itself: a forked child has it as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import Arch
from ftpatch.core.byte_order import NATIVE
from ftpatch.errors import FtpatchError, InputError, NoTable, UsageError
from ftpatch.ftrace.filter import Selection, expand, select_sites
from ftpatch.image.injected import laid_in_at
from ftpatch.inject.runtime import library_stub
from ftpatch.layout import offset_of
from ftpatch.process.areas import READ_WRITE, filled, find_hole, placed
from ftpatch.process.bring_in import TOKEN
from ftpatch.process.held import Held
from ftpatch.process.link_map import take_for
from ftpatch.process.linker import Asking, Listener, Started, debug_of, hook_linker, hooked_at
from ftpatch.process.loaded import Loaded, loaded_images
from ftpatch.process.maps import read_maps
from ftpatch.process.memory_target import MemoryTarget, writable_memory
from ftpatch.process.process import Process
from ftpatch.process.refusals import own_arch
from ftpatch.process.send import injected_call_of
from ftpatch.tracer.attach import THROWS, Chosen, calls_of
from ftpatch.tracer.bring_asking import PRIVATE, bring_asking, map_asking
from ftpatch.tracer.connected import Runtime
from ftpatch.tracer.plan import Tracing, traceable

__all__ = ["LATER_SITES", "UNHOOKED", "Later"]

LATER_SITES: Final = 4096
"""Sites of libraries for which a profile's table has room, beyond those that are known."""
UNHOOKED: Final = Path("constructors and libraries opened later")
"""Named as untraced where the dynamic linker cannot be hooked."""
WORD: Final = 8
START_STACK: Final = 28
"""Field of /proc/PID/stat."""


class Later:
    """Libraries of programs of one run that match ``globs``. ``folder`` has patched copies, which
    are left alone, of the originals that ``copies`` tells; ``environment``: as in a program that
    starts with its runtime; ``matched``: globs that have matched some; ``missing``: filters that
    have matched nothing, None if there was no image; ``untraced``: files, and why."""

    def __init__(
        self, globs: Sequence[str], selection: Selection, tracing: Tracing, folder: Path
    ) -> None:
        """Raises InputError if nobody can ask."""
        self._globs, self._tracing, self._folder = globs, tracing, folder
        self._selection = expand(selection)
        self.environment = dict[str, str]()
        self.copies: Mapping[Path, Path] = {}
        self.matched = set[str]()
        self.missing: set[str] | None = None
        self.untraced: dict[Path, str] = {}
        self._listener = Listener(self._answer, self._tell)

    def close(self) -> None:
        """Answer nobody any more."""
        self._listener.close()

    def hook(self, held: Held, loaded: Sequence[Loaded], arch: Arch) -> bool:
        """Let the dynamic linker of a program that is held as it starts ask for its libraries; say
        whether it will."""
        program = loaded[0]
        at = laid_in_at(program.file)
        config = 0
        if at is not None:
            address = program.file.elf.address_of(np.array([at], np.int64))
            config = program.above(int(address[0]))
        try:
            with writable_memory(held.process) as target:
                started = Started(config=config)
                hook_linker(held, target, loaded, arch, self._listener.name, started)
        except FtpatchError as error:
            self._tell(error)
            return False
        return True

    def _tell(self, error: FtpatchError) -> None:
        reason = f"{error.reason}; {error.hint}".removesuffix("; ")
        self.untraced.setdefault(Path(error.path or UNHOOKED), reason)

    def _answer(self, asking: Asking) -> None:
        """Patch what is new in a process that asks. Raises what planning raises."""
        loaded, _ = loaded_images(asking.process)
        wanted = [one for one in loaded[1:] if self._is_wanted(one)]
        with writable_memory(asking.process) as target:
            arch = own_arch()
            assert arch is not None  # whoever asks was hooked
            place, started = hooked_at(target, loaded, arch, self._listener.name)
            if not started.config:
                self._begin(asking, target, loaded, wanted, place)
                return
            runtime = Runtime.of(loaded[0], target, self._tracing, started.config)
            if not runtime.has_begun:
                # Before any constructor runs; from the program's entry point it would be too late.
                self._take_copies(target, loaded)
                asking.run(runtime.start, _stack(asking.process))
                runtime = Runtime.of(loaded[0], target, self._tracing, started.config)
            if not (runtime.is_ready and wanted):
                return
            unwinders = runtime.meet(loaded)
            for one in wanted:
                with self._telling(one):
                    mask = self._mask(one)
                    if mask is None:
                        continue
                    if unwinders is not None and unwinders.misses(one):
                        raise UsageError(one.path, *THROWS)
                    self._patch(asking, target, runtime, Chosen(loaded=one, mask=mask), loaded)

    def _begin(
        self,
        asking: Asking,
        target: MemoryTarget,
        loaded: Sequence[Loaded],
        wanted: Sequence[Loaded],
        place: int,
    ) -> None:
        """Bring a tracer into a program that has none, if anything of it is to be traced; its hook
        tells of that at ``place``."""
        chosen = list[Chosen]()
        for one in [loaded[0], *wanted]:
            with self._telling(one):
                mask = self._mask(one)
                if mask is not None:
                    chosen.append(Chosen(loaded=one, mask=mask))
        if not chosen:
            return
        with self._telling(loaded[0]):
            tracing = replace(self._tracing, more=LATER_SITES)
            started = bring_asking(asking, target, loaded, chosen, tracing, self.environment)
            target.write(place, started.pack())

    def _take_copies(self, target: MemoryTarget, loaded: Sequence[Loaded]) -> None:
        """Let the linker take copies for their originals: a program that opens one by its path gets
        the copy, in which it is linked with."""
        for one in loaded:
            original = self.copies.get(one.path)
            if original is not None:
                with contextlib.suppress(OSError):
                    held, other = one.path.stat(), original.stat()
                    take_for(target, debug_of(loaded), one.bias, held, other)

    @contextlib.contextmanager
    def _telling(self, one: Loaded) -> Iterator[None]:
        """Tell of errors by an image's name."""
        try:
            yield
        except NoTable:
            pass
        except FtpatchError as error:
            self._tell(type(error)(error.path or one.path, error.reason, error.hint))

    def _mask(self, one: Loaded) -> NDArray[np.bool_] | None:
        """The sites to be traced of an image; None if there are none, or they are already."""
        if not one.sites_of_file.table_name:
            return None
        missing = set[str]()
        mask = select_sites(one.sites, self._selection, missing)
        self.missing = missing if self.missing is None else self.missing & missing
        if not mask.any() or one.differing[mask].any():
            return None
        mask = traceable(one.sites, mask, libraries=True)
        return mask if mask.any() else None

    def _is_wanted(self, one: Loaded) -> bool:
        if one.path.is_relative_to(self._folder):
            return False
        found = {glob for glob in self._globs for name in one.names if fnmatchcase(name, glob)}
        self.matched |= found
        return bool(found)

    def _patch(
        self,
        asking: Asking,
        target: MemoryTarget,
        runtime: Runtime,
        chosen: Chosen,
        loaded: Sequence[Loaded],
    ) -> None:
        """Let a library's sites call the runtime."""
        one = chosen.loaded
        arguments, arch = self._tracing.arguments, runtime.arch
        stub = library_stub(arch.name, arguments=arguments)
        hook = stub.address("ftpatch_library")
        callee = stub.address("ftrace_regs_caller" if arguments else "ftrace_caller")
        assert hook is not None and callee is not None
        # Its row may be another instance's: a copy that is there has the original's name.
        row, library = runtime.row_of(one, {other.bias for other in loaded})
        delta = runtime.bias + runtime.base + library.start - one.bias - library.base
        call, low, high = injected_call_of(arch.name), *one.span
        own = {
            name: offset_of("library_hook", name, arch.name)
            for name in ("image_id", "entry", "delta")
        }
        if max(abs(library.place - low), abs(library.place - high)) < call.reach:
            shift = library.place - hook  # of the same file, when it was opened before
            calls = calls_of(chosen, callee + shift).changes
            target.write(library.place + own["delta"], _word(delta))
        else:
            size = placed(stub.parts, 0, arch.page, before=TOKEN).size
            start = find_hole(
                asking.process,
                read_maps(asking.process),
                [],
                low=low,
                high=high,
                size=size,
                reach=call.reach,
                page=arch.page,
            )
            area = placed(stub.parts, start, arch.page, before=TOKEN)
            calls = calls_of(chosen, callee + area.shift).changes
            known = {
                hook + own["image_id"]: library.image_id,
                hook + own["entry"]: _word(runtime.entry),
                hook + own["delta"]: _word(delta),
            }
            map_asking(asking, target, replace(area, contents=filled(area, known)))
            runtime.look_up(area, stub.unwind)
            library = replace(library, place=hook + area.shift)
        held, there = target.held(calls)
        if not there.all() or (held != calls.old).any():
            raise InputError(one.path, "its code in memory is not that of the file")
        runtime.connect(
            row,
            replace(library, bias=one.bias),
            lambda size: asking.call(call.mmap, (0, size, READ_WRITE, PRIVATE, -1, 0)),
        )
        target.apply(calls)


def _stack(process: Process) -> int:
    """Where a process's stack had argc when it began (mm->start_stack, proc_pid_stat(5)). Raises
    InputError."""
    try:
        held = (process.place / "stat").read_bytes()
    except OSError as error:
        raise InputError(None, f"{process}: cannot be read: {error.strerror}") from None
    found = int(held.rpartition(b")")[2].split()[START_STACK - 3])
    if not found:
        raise InputError(None, f"{process}: its stack is not shown")
    return found


def _word(value: int) -> bytes:
    return NATIVE.packed(value % (1 << 64), WORD)
