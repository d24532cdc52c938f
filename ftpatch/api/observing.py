# SPDX-License-Identifier: MIT
"""Variables of a running process, watched for a while."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from ftpatch.api.attaching import require_place_for, require_unmapped
from ftpatch.errors import OutputError
from ftpatch.process.loaded import Loaded
from ftpatch.process.process import Process
from ftpatch.trace.children import children_of
from ftpatch.watch import parse_watch
from ftpatch.watch.running import Chosen, choose_watches
from ftpatch.watch.running import Watching as Recording

__all__ = ["LOOK", "Watching", "recording"]

LOOK = 0.01
"""Seconds between two looks at the ring."""


@contextlib.contextmanager
def recording(process: Process, chosen: Chosen, trace: Path, size: int) -> Iterator[Recording]:
    """Watch the chosen variables of a process and record to a file of at most ``size`` bytes, in
    place of an earlier one. Raises InputError for what the kernel refuses: then nothing is watched;
    OutputError."""
    require_unmapped(process, trace)
    with Recording(process, chosen) as watching:
        watching.begin()
        try:
            _make_way(trace)
            watching.record(trace, size)
            yield watching
        except OSError as error:
            reason = f"cannot write: {error.strerror}"
            raise OutputError(error.filename or trace, reason) from None


class Watching:
    """Variables of a process that are watched until ``stop``, or the end of a ``with`` block.

    ``watches`` as written, ``threads`` in which the breakpoints were set, ``notes`` on what is
    watched in part or cannot be; ``trace``: the file that accesses are recorded to.
    """

    def __init__(
        self,
        process: Process,
        loaded: Sequence[Loaded],
        watches: Sequence[str],
        trace: Path,
        *,
        size: int,
        overwrite: bool,
    ) -> None:
        require_place_for(trace, overwrite=overwrite)
        chosen = choose_watches(loaded, [parse_watch(text) for text in watches])
        self.trace = trace
        self.notes: tuple[str, ...] = (*chosen.notes, *chosen.partial)
        self._files: tuple[Path, ...] | None = None
        self._failure: OSError | None = None
        self._ended = threading.Event()
        self._held = contextlib.ExitStack()
        self._recording = self._held.enter_context(recording(process, chosen, trace, size))
        self.watches: tuple[str, ...] = tuple(self._recording.lines)
        self.threads: int = self._recording.threads
        self._thread = threading.Thread(target=self._look, name="watching", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        state = "watching" if self._files is None else "watched"
        return f"<{state} {', '.join(self.watches)}>"

    @property
    def accesses(self) -> int:
        """Accesses recorded so far."""
        return self._recording.recorded

    def stop(self) -> tuple[Path, ...]:
        """Watch no more; the trace files, the process's own first, then its children's. Raises
        OutputError."""
        if self._files is None:
            self._ended.set()
            self._thread.join()
            self._files = ()
            with self._held:
                if self._failure is not None:
                    reason = f"cannot write: {self._failure.strerror}"
                    raise OutputError(self.trace, reason) from None
                self._files = tuple(self._recording.finish())
        return self._files

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _look(self) -> None:
        try:
            while not self._ended.wait(LOOK):
                self._recording.look()
        except OSError as error:
            self._failure = error


def _make_way(trace: Path) -> None:
    """Remove the files of an earlier run."""
    if trace.exists():
        for path in [*children_of([trace]), trace]:
            path.unlink()
