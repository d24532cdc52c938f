# SPDX-License-Identifier: MIT
"""A thread of ours that traces: requests of ptrace(2) are valid in the one that seized.

When it ends, the kernel lets go whatever it still traces, also what has not stopped yet and cannot
be detached therefore. And the thread that it works for stays free: to see Ctrl-C, and to do what
unblocks it.
"""

from __future__ import annotations

import gc
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

__all__ = ["Ptracer", "undisturbed"]

PATIENCE: Final = 0.05
"""Seconds of waiting after which ``unblock`` is called, again and again."""
END: Final = 1.0
"""Maximum seconds to wait for its end."""

T = TypeVar("T")
Answer = tuple[list[T], BaseException | None]


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let the calling thread run before all others, where it may (CAP_SYS_NICE): threads that are
    let go, and whatever else the machine does, would take the processor while a process is stopped.
    No garbage is collected meanwhile. To be used when nothing is waited for: a thread that has to
    stop needs the processor as well."""
    policy, parameter = os.sched_getscheduler(0), os.sched_getparam(0)
    collects, granted = gc.isenabled(), False
    gc.disable()
    with suppress(OSError):
        lowest = os.sched_param(os.sched_get_priority_min(os.SCHED_FIFO))
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, lowest)
        granted = True
    try:
        yield
    finally:
        if granted:
            os.sched_setscheduler(0, policy, parameter)
        if collects:
            gc.enable()


class Ptracer:
    """The thread. ``unblock()`` is called in the caller's while that waits long for an answer; what
    it raises, ends the waiting."""

    def __init__(self, unblock: Callable[[], None] = lambda: None) -> None:
        self._unblock = unblock
        self._asked: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="ptrace", daemon=True)
        self._thread.start()

    def __enter__(self) -> Ptracer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the thread, and wait until the kernel has let go what it traced."""
        self._asked.put(None)
        place = Path(f"/proc/self/task/{self._thread.native_id}")
        until = time.monotonic() + END
        while time.monotonic() < until and place.exists():
            time.sleep(0.0002)

    @property
    def tid(self) -> int:
        """Its number, as TracerPid has it."""
        return self._thread.native_id or 0

    def do(self, function: Callable[[], T]) -> T:
        """Call a function in it, and return or raise what that does."""
        answered: queue.SimpleQueue[Answer[T]] = queue.SimpleQueue()

        def answer() -> None:
            try:
                answered.put(([function()], None))
            except BaseException as error:
                answered.put(([], error))

        self._asked.put(answer)
        while True:
            try:
                values, error = answered.get(timeout=PATIENCE)
            except queue.Empty:
                self._unblock()
                continue
            if error is not None:
                raise error
            return values[0]

    def _serve(self) -> None:
        while (answer := self._asked.get()) is not None:
            answer()
