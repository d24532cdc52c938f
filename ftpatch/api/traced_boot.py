# SPDX-License-Identifier: MIT
"""Traced boots, as a user of Python meets them."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from ftpatch.api.booting import Booted, BootWords, boot_kernel
from ftpatch.api.call_columns import Columns
from ftpatch.api.trace_columns import Trace, access_columns
from ftpatch.errors import UsageError
from ftpatch.io.temporary import FOLDERS, claim, sweep

if TYPE_CHECKING:
    from typing import Self

__all__ = ["Boot"]


class Boot:
    """A kernel's boot that has ended.

    ``events`` is how many came; ``ended`` says why it is over, ``stopped`` whether the tracer had
    stopped, and ``status`` is QEMU's exit code if it ended by itself. ``last`` are the latest
    functions, ``notes`` what preceded an end that was not the tracer's, and ``exit_code`` is what
    ``ftpatch boot`` exits with. ``stream`` and ``image``
    are the files for ``Trace(stream, image=image, ...)``, which selects calls; they are removed
    with this object unless they are kept.
    """

    def __init__(self, booted: Booted) -> None:
        from ftpatch.boot.ending import names_at

        ended = booted.ended
        self.events: int = ended.events
        self.ended: str = ended.ended
        self.stopped: bool = ended.stopped
        self.status: int | None = ended.status
        self.last: list[str] = names_at(booted.kernel, list(ended.last))
        self.notes: list[str] = booted.ending.lines
        self.exit_code: int = booted.ending.code
        self.stream: Path = booted.stream
        self.image: Path = booted.kernel.path
        self._console = booted.console
        self._accesses = booted.accesses

    @classmethod
    def run(cls, path: Path, words: BootWords, keep: Path | None) -> Self:
        """Boot a kernel, in a new folder to ``keep``, or one that goes with the object."""
        if keep is not None:
            try:
                keep.mkdir()
            except OSError as error:
                reason = f"cannot create: {error.strerror}"
                raise UsageError(keep, reason, "name a new directory") from None
            return cls(boot_kernel(path, keep, words))
        sweep(Path(tempfile.gettempdir()), FOLDERS)
        folder = Path(tempfile.mkdtemp(prefix="ftpatch."))
        claim(folder)
        try:
            made = cls(boot_kernel(path, folder, words))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        weakref.finalize(made, shutil.rmtree, folder, ignore_errors=True)
        return made

    def __repr__(self) -> str:
        return f"<boot of {self.events} events, {self.ended}>"

    @property
    def console(self) -> str:
        """The kernel's output."""
        if not self._console.is_file():
            return ""
        return self._console.read_text("utf-8", "replace")

    def columns(self) -> Columns:
        """Its calls, or hits of its probes, as ``Trace.columns`` has them; times are numbers of
        events, or with ``time`` ticks. Raises InputError where there is no event."""
        return Trace(self.stream, image=self.image).columns()

    def accesses(self) -> Columns:
        """Accesses to the variables that were watched, as ``Trace.columns`` has them; times are
        numbers of events. Raises UsageError if none were."""
        if self._accesses is None:
            raise UsageError(None, "no variable was watched", "boot with watch=")
        return access_columns(self._accesses, self._accesses)

    def profile(self) -> Columns:
        """Its functions, as ``Trace.profile`` has them."""
        return Trace(self.stream, image=self.image).profile()
