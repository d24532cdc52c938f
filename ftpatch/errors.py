# SPDX-License-Identifier: MIT
"""The few kinds of failure, and the one place that knows exit codes.

ftrace tells its callers three things (``ftrace_bug`` in kernel/trace/ftrace.c): the site could
not be read (EFAULT), it did not hold what was expected (EINVAL), it could not be written (EPERM).
The first two are a refusal and end with 1; the third is I/O and ends with 2, as does all that is
wrong with the input or with the command.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

__all__ = [
    "Exit",
    "FtpatchError",
    "InputError",
    "NoImages",
    "NoTable",
    "OutputError",
    "Refused",
    "SiteRefused",
    "UsageError",
]


class Exit(IntEnum):
    """Exit codes of every verb."""

    DONE = 0
    """Done, or nothing differs."""
    FOUND = 1
    """A site was refused, a check found something, or files differ."""
    ERROR = 2
    """Usage, unreadable, unparseable or unsupported input, I/O."""
    OWN = 125
    """A failure of our own, where the exit code is otherwise that of the program we ran."""


class FtpatchError(Exception):
    """One line for the person at the terminal: the file, the place, the reason and what to do.

    ``path`` may be None where no file is concerned; ``reason`` is a clause without a full stop;
    ``hint`` says what to do and may be empty.
    """

    exit = Exit.ERROR

    def __init__(self, path: Path | str | None, reason: str, hint: str = "") -> None:
        self.path = None if path is None else str(path)
        self.reason = reason
        self.hint = hint
        place = "" if self.path is None else f"{self.path}: "
        super().__init__(f"{place}{reason}" + (f"; {hint}" if hint else ""))

    def __reduce__(self) -> tuple[type[FtpatchError], tuple[str | None, str, str]]:
        """Support pickling, to leave a worker process."""
        return type(self), (self.path, self.reason, self.hint)


class UsageError(FtpatchError):
    """The command asks for something impossible: an unknown symbol, a filter that matches
    nothing."""


class Refused:
    """Collects what a command refused, so that all of it can be reported, each error once; and what
    it ``skipped``, which is no error."""

    def __init__(self) -> None:
        self.errors: list[UsageError] = []
        self.skipped: dict[str, UsageError] = {}

    @contextmanager
    def told(self, path: Path | str | None = None, *, skips: Sequence[str] = ()) -> Iterator[None]:
        """Keep a UsageError; of one that names no file, ``path`` is where it belongs. ``skips``:
        names of what is then skipped."""
        try:
            yield
        except UsageError as error:
            for name in skips:
                bare = error.reason.removeprefix(f"{', '.join(skips)}: ")
                told = UsageError(error.path or path, f"{name}: {bare}", error.hint)
                self.skipped.setdefault(name, told)
            placed = UsageError(error.path or path, error.reason, error.hint)
            if not skips and str(placed) not in map(str, self.errors):
                self.errors.append(placed)


class InputError(FtpatchError):
    """The input cannot be read, is not what it says it is, or is not supported."""


class NoTable(InputError):
    """The image can be read, but has no table of call sites."""


class NoImages(InputError):
    """A directory has no images."""


class OutputError(FtpatchError):
    """The output cannot be written (EPERM of ftrace's contract)."""


class SiteRefused(FtpatchError):
    """At least one site was refused (EFAULT, EINVAL), so nothing was written."""

    exit = Exit.FOUND
    refused: Sequence[tuple[object, str]] = ()
    """Each site with the reason, where the caller is a program."""
