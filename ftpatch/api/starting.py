# SPDX-License-Identifier: MIT
"""A program started for probes: held when its dynamic linker has mapped and relocated its
libraries, before a constructor runs. It waits in a system call, traced by nobody, so that it can be
probed as any running process is; if ftpatch ends, it goes on.

    exec ── linker hooked ── libraries mapped ── waits ─────────── constructors ── main
         ^ ptrace(2), detached                    ^ probes laid in ^ let go
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from ftpatch.arch import arch_named
from ftpatch.elf.headers import Segment
from ftpatch.errors import FtpatchError, InputError, UsageError
from ftpatch.io.cleanup import ending_handled
from ftpatch.process.held import Held
from ftpatch.process.linker import Asking, Listener, Started, hook_linker
from ftpatch.process.loaded import loaded_images
from ftpatch.process.memory_target import writable_memory
from ftpatch.process.process import Process, ending
from ftpatch.process.refusals import require_may_stop
from ftpatch.tracer.following import Following
from ftpatch.tracer.run import find_program

__all__ = ["Program", "started"]

LOOK = 0.02
"""Seconds between two looks at a program that has not asked yet."""


class Program:
    """A program that has been started, its ``process``, and the file at ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.process: Process
        self._waits, self._goes_on = threading.Event(), threading.Event()
        self._error: FtpatchError | None = None
        self._listener = Listener(self._answer, self._fail)
        try:
            self._following = Following(self._executed, once=True)
        except BaseException:
            self._listener.close()
            raise

    def start(self, words: Sequence[str]) -> None:
        """Start it with the arguments ``words``, from its own name on, and wait until it is held.
        Raises InputError and UsageError; then nothing of it has run."""
        try:
            child = subprocess.Popen(  # everything that a shell would pass on
                list(words),
                executable=self.path.absolute(),  # a bare name would be searched for
                close_fds=False,
                preexec_fn=self._following.before,
            )
        except OSError as error:
            raise InputError(self.path, f"cannot run: {error.strerror}") from None
        child.returncode = 0  # the following thread waits for it
        gone = contextlib.suppress(ProcessLookupError)  # it has ended, and been waited for
        with gone, ending(child.pid) as has_ended:
            while not (self._waits.wait(LOOK) or has_ended(0)):
                pass
        if self._error is not None:
            raise self._error
        if not self._waits.is_set():
            code = self._following.wait()  # raises NotFollowed, if that is why
            how = f"killed by signal {-code}" if code < 0 else f"exited with {code}"
            hint = "see whether it runs without ftpatch"
            raise InputError(self.path, f"{how} before its libraries were loaded", hint)

    def end_if_held(self) -> None:
        """End it unless it has been let go on: nothing of it has run."""
        if not self._goes_on.is_set():
            self.send(signal.SIGKILL)

    def go_on(self) -> None:
        """Let it run."""
        self._goes_on.set()

    def wait(self) -> int:
        """Wait until it has ended; return 128 + N if signal N killed it."""
        code = self._following.wait()
        return code if code >= 0 else 128 - code

    def send(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        self._following.send(number)

    def close(self) -> None:
        """Let its dynamic linker ask nobody any more."""
        self._goes_on.set()
        self._listener.close()

    def _executed(self, process: Process, arch: str) -> bool:
        """Hook the linker of a process that the calling thread holds; what cannot be held does not
        run. Raises Ended."""
        held: Held | None = None
        try:
            require_may_stop(process)
            held = Held(process, arch)
            loaded, errors = loaded_images(process)
            if not loaded:
                raise errors[0] if errors else InputError(self.path, "cannot be read")
            if loaded[0].file.elf.segment(Segment.PT_INTERP) is None:
                hint = "write a probed copy: ftpatch probe PROG PROBE -o FILE"
                raise UsageError(loaded[0].path, "statically linked: no linker to wait for", hint)
            with writable_memory(process) as target:
                name = self._listener.name
                hook_linker(held, target, loaded, arch_named(arch), name, Started())
        except FtpatchError as error:
            self._fail(error)
        return held is not None and held.group_stop

    def _answer(self, asking: Asking) -> None:
        """Hold it when it asks for the first time; what it opens later is not waited for."""
        if not self._waits.is_set():  # nothing of it has run that could have forked
            self.process = asking.process
            self._waits.set()
            self._goes_on.wait()

    def _fail(self, error: FtpatchError) -> None:
        """End the program before it runs."""
        if self._error is None and not self._waits.is_set():
            self._error = error
            self.send(signal.SIGKILL)
            self._waits.set()


@contextlib.contextmanager
def started(words: Sequence[str]) -> Iterator[Program]:
    """Start a command line, held before any code of the program or its libraries; ended unless it
    was let go on. Raises UsageError and InputError."""
    program = Program(find_program(words[0]))
    try:
        with _ended_with_us(program):
            try:
                program.start(words)
                yield program
            except BaseException:
                program.end_if_held()
                raise
    finally:
        program.close()


@contextlib.contextmanager
def _ended_with_us(program: Program) -> Iterator[None]:
    """Signals that end ftpatch end a program that is held first: nobody would ask for it any more,
    and it would run on without probes."""

    def end(number: int, frame: FrameType | None, handler: Any) -> None:  # noqa: ANN401
        program.end_if_held()
        if callable(handler):
            handler(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    with ending_handled(end):
        yield
