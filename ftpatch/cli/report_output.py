# SPDX-License-Identifier: MIT
"""Destination of a report: standard output as it comes, or a file that appears once it is whole."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO

from ftpatch.cli.pager import Pager, wants_pager
from ftpatch.cli.progress import PROGRESS, is_pipe
from ftpatch.errors import OutputError, UsageError
from ftpatch.io.cleanup import CLEANUP
from ftpatch.io.output import require_new
from ftpatch.io.temporary import as_created, named, sweep

if TYPE_CHECKING:
    from ftpatch.cli.report_folder import FolderOutput
    from ftpatch.trace import Report
    from ftpatch.trace.report import Part

__all__ = ["Output", "open_output"]

BUFFER = io.DEFAULT_BUFFER_SIZE
"""Bytes that standard output holds back."""


def open_output(
    path: Path | None, *, force: bool, form: Report, otherwise: str = "", paged: bool = True
) -> Output | FolderOutput:
    """The destination that a form needs: standard output, on a terminal ``paged``, a file or a
    folder. Raises UsageError (``otherwise``: what to do where a name is missing) and
    OutputError."""
    if form.folder:
        from ftpatch.cli.report_folder import FolderOutput

        otherwise = otherwise or "name it with -o FOLDER"
        return FolderOutput(path, format_=form.name, otherwise=otherwise)
    missing = otherwise or "use -o FILE"
    return Output(path, force=force, form=form, otherwise=missing, paged=paged)


class Output:
    """A context: what is written appears by ``appear``, and without that only on standard output.

    If ``paged``, a terminal gets what is longer than its screen through a pager. Raises UsageError
    for a form that is not for a terminal on one (``otherwise``: what to do), and for a file that
    exists (without ``force``) or that is none; OutputError where it cannot be written.
    """

    def __init__(
        self, path: Path | None, *, force: bool, form: Report, otherwise: str, paged: bool
    ) -> None:
        self._path, self._force = path, force
        self._file: BinaryIO | None = None
        self._name: Path | None = None
        self._pager: Pager | None = None
        self._written = 0
        if path is None:
            if not form.for_terminal and sys.stdout.isatty():
                raise UsageError(None, "this format cannot be written to a terminal", otherwise)
            if paged and wants_pager():
                self._pager = Pager()
            return
        require_new(path, force=force)
        try:
            sweep(path.parent)
            self._name, fd = named(path.parent)
        except OSError as error:
            raise OutputError(path, f"cannot write: {error.strerror}") from None
        self._file = os.fdopen(fd, "wb")

    @property
    def is_terminal(self) -> bool:
        """True if what is written is seen as it comes."""
        return self._file is None and sys.stdout.isatty()

    @property
    def is_left(self) -> bool:
        """True if nobody reads on."""
        return self._pager is not None and self._pager.is_gone

    def __enter__(self) -> Output:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pager is not None:
            self._pager.close()
        if self._file is not None:
            with contextlib.suppress(OSError):  # what is left to write has been told of
                self._file.close()
        if self._name is not None:
            self._name.unlink(missing_ok=True)
            CLEANUP.name = None

    def write(self, part: Part) -> None:
        """A part of the report."""
        assert not isinstance(part, tuple)
        raw = part if isinstance(part, bytes) else part.encode("utf-8", "backslashreplace")
        if self._file is not None:
            try:
                self._file.write(raw)
            except OSError as error:
                raise OutputError(self._path, f"cannot write: {error.strerror}") from None
        elif self._pager is not None:
            self._pager.write(raw)
        elif hasattr(sys.stdout, "buffer"):
            self._written += len(raw)
            # Parts need not be whole lines; and who reads a pipe gets nothing until this is full.
            full = self._written > BUFFER
            if PROGRESS.is_on and (sys.stdout.isatty() or (full and is_pipe(sys.stdout))):
                PROGRESS.end()
            sys.stdout.buffer.write(raw)
        else:
            sys.stdout.write(raw.decode("utf-8", "backslashreplace"))

    def appear(self) -> None:
        """Give the file its name."""
        if self._file is None or self._name is None or self._path is None:
            return
        try:
            self._file.flush()
            as_created(self._file.fileno())
            os.fsync(self._file.fileno())
            self._file.close()
            with CLEANUP:
                if self._force:
                    self._name.replace(self._path)
                else:
                    os.link(self._name, self._path)
                    self._name.unlink()
                self._name, CLEANUP.name, CLEANUP.appeared = None, None, True
        except OSError as error:
            raise OutputError(self._path, f"cannot write: {error.strerror}") from None
