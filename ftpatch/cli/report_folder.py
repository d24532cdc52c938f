# SPDX-License-Identifier: MIT
"""Destination of a report of many files: a folder that appears once it is whole."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from ftpatch.errors import OutputError, UsageError
from ftpatch.io.cleanup import CLEANUP
from ftpatch.io.temporary import FOLDERS, claim, require_place, sweep

if TYPE_CHECKING:
    from ftpatch.trace.report import Part

__all__ = ["FolderOutput"]


class FolderOutput:
    """A context: what is written appears by ``appear``. Raises UsageError where there is no name
    for the folder of ``format_`` (``otherwise``: what to do), or where something has it;
    OutputError where it cannot be written."""

    is_terminal = False
    is_left = False

    def __init__(self, path: Path | None, *, format_: str, otherwise: str) -> None:
        if path is None:
            raise UsageError(None, f"format {format_} writes a folder", otherwise)
        if os.path.lexists(path):
            raise UsageError(path, "the output exists", "remove it, or name another folder")
        self._path = path
        require_place(path)
        try:
            sweep(path.parent, FOLDERS)
            with CLEANUP:
                self._folder = Path(tempfile.mkdtemp(prefix="ftpatch.", dir=path.parent))
                CLEANUP.passing.append(self._folder)
            claim(self._folder)
        except OSError as error:
            raise OutputError(path, f"cannot write: {error.strerror}") from None

    def __enter__(self) -> FolderOutput:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._folder in CLEANUP.passing:
            CLEANUP.passing.remove(self._folder)

    def write(self, part: Part) -> None:
        """The next bytes of one of its files."""
        assert isinstance(part, tuple)
        name, raw = part
        assert name == Path(name).name
        try:
            with (self._folder / name).open("ab") as file:
                file.write(raw)
        except OSError as error:
            raise OutputError(self._path, f"cannot write: {error.strerror}") from None

    def appear(self) -> None:
        """Give the folder its name."""
        mask = os.umask(0)
        os.umask(mask)
        try:
            self._folder.chmod(0o777 & ~mask)
            with CLEANUP:
                self._folder.rename(self._path)
                CLEANUP.passing.remove(self._folder)
                CLEANUP.appeared = True
        except OSError as error:
            raise OutputError(self._path, f"cannot write: {error.strerror}") from None
