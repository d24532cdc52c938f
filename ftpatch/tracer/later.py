# SPDX-License-Identifier: MIT
"""Shared libraries that a traced program opens later: patched in memory when the dynamic linker has
mapped them, to call the tracer in the program's copy.

    program    | stub_config | struct process | hooks, biases |
    table      | struct library ... | zeros         its own, until the first one is added
    header     | trace_library ... |                of the process's trace file
    library    | sites ...  | area: its stub, which calls the runtime |

All that is known of them is in the process itself: a forked child has it as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from ftpatch.arch import Arch
from ftpatch.errors import FtpatchError, InputError, NoTable
from ftpatch.ftrace.filter import Selection, expand, select_sites
from ftpatch.inject.runtime import library_stub
from ftpatch.layout import offset_of
from ftpatch.process.areas import READ_EXECUTE, READ_WRITE, filled, find_hole, placed
from ftpatch.process.bring_in import TOKEN
from ftpatch.process.held import Held
from ftpatch.process.linker import Asking, Listener, hook_linker
from ftpatch.process.loaded import Loaded, loaded_images
from ftpatch.process.maps import read_maps
from ftpatch.process.memory_target import MemoryTarget, writable_memory
from ftpatch.process.process import Process
from ftpatch.process.send import injected_call_of
from ftpatch.tracer.attach import Chosen, calls_of
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
PRIVATE: Final = 0x2 | 0x20
"""MAP_PRIVATE, MAP_ANONYMOUS."""
NOREPLACE: Final = PRIVATE | 0x100000
"""MAP_FIXED_NOREPLACE (Linux 4.17)."""


class Later:
    """Libraries of programs of one run that match ``globs``. ``folder`` has patched copies, which
    are left alone; ``matched``: globs that have matched some; ``missing``: filters that have
    matched nothing, None if there was no library; ``untraced``: files, and why."""

    def __init__(
        self, globs: Sequence[str], selection: Selection, tracing: Tracing, folder: Path
    ) -> None:
        """Raises InputError if nobody can ask."""
        self._globs, self._tracing, self._folder = globs, tracing, folder
        self._selection = expand(selection)
        self.matched = set[str]()
        self.missing: set[str] | None = None
        self.untraced: dict[Path, str] = {}
        self._listener = Listener(self._answer, self._tell)

    def close(self) -> None:
        """Answer nobody any more."""
        self._listener.close()

    def hook(self, held: Held, loaded: Sequence[Loaded], arch: Arch) -> None:
        """Let the dynamic linker of a program that is held as it starts ask for its libraries."""
        try:
            with writable_memory(held.process) as target:
                hook_linker(held, target, loaded, arch, self._listener.name)
        except FtpatchError as error:
            self._tell(error)

    def _tell(self, error: FtpatchError) -> None:
        reason = f"{error.reason}; {error.hint}".removesuffix("; ")
        self.untraced.setdefault(Path(error.path or UNHOOKED), reason)

    def _answer(self, asking: Asking) -> None:
        """Patch what is new in a process that asks. Raises what planning raises."""
        loaded, _ = loaded_images(asking.process)
        with writable_memory(asking.process) as target:
            runtime = Runtime.of(loaded[0], target, self._tracing)
            if not runtime.has_begun:
                # Before any constructor runs; from the program's entry point it would be too late.
                asking.run(runtime.start, _stack(asking.process))
                runtime = Runtime.of(loaded[0], target, self._tracing)
            wanted = [one for one in loaded[1:] if self._is_wanted(one)]
            for one in wanted if runtime.is_ready else ():
                try:
                    self._patch(asking, target, runtime, one, loaded)
                except NoTable:
                    continue
                except FtpatchError as error:
                    self._tell(type(error)(one.path, error.reason, error.hint))

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
        one: Loaded,
        loaded: Sequence[Loaded],
    ) -> None:
        """Let a library's sites call the runtime, unless they do."""
        missing = set[str]()
        mask = select_sites(one.sites, self._selection, missing)
        self.missing = missing if self.missing is None else self.missing & missing
        if not mask.any() or one.differing[mask].any():
            return
        mask = traceable(one.sites, mask, libraries=True)
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
            calls = calls_of(Chosen(loaded=one, mask=mask), callee + shift).changes
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
            calls = calls_of(Chosen(loaded=one, mask=mask), callee + area.shift).changes
            known = {
                hook + own["image_id"]: library.image_id,
                hook + own["entry"]: _word(runtime.entry),
                hook + own["delta"]: _word(delta),
            }
            asking.call(call.mmap, (area.start, area.size, READ_EXECUTE, NOREPLACE, -1, 0))
            for at, data in filled(area, known):
                target.write(at, data)
            for protected in area.protected:
                asking.call(call.mprotect, protected)
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
    return (value % (1 << 64)).to_bytes(WORD, "little")
