# SPDX-License-Identifier: MIT
"""Textual's driver of a terminal, for one that goes away, or sends what is no UTF-8.

Textual's own writer dies of the first error, and the queue that it no longer empties then blocks
the application for ever; bytes that cannot be decoded end it.
"""

from __future__ import annotations

import codecs
import contextlib
from functools import partial
from typing import IO, Any

from textual.drivers import linux_driver

__all__ = ["TerminalDriver"]


class TerminalDriver(linux_driver.LinuxDriver):
    """Goes on when nobody can see or says it understandably; a signal ends it."""

    def __init__(self, *words: Any, **options: Any) -> None:  # noqa: ANN401 - what textual passes
        super().__init__(*words, **options)
        self._file: Any = _Written(self._file)

    def run_input_thread(self) -> None:
        """Read keys; bytes that are no UTF-8 are no key."""
        linux_driver.getincrementaldecoder = _replacing  # type: ignore[attr-defined,assignment]
        super().run_input_thread()


class _Written:
    """A terminal to write to, as long as it is there."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._file.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._file.flush()

    def fileno(self) -> int:
        return self._file.fileno()


def _replacing(encoding: str) -> partial[codecs.IncrementalDecoder]:
    return partial(codecs.getincrementaldecoder(encoding), errors="replace")
