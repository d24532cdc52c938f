# SPDX-License-Identifier: MIT
"""Arguments as a user of Python gives them: what has another type is named in one line."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable
from pathlib import Path

from ftpatch.errors import UsageError

__all__ = ["AnyPath", "path_of", "patterns", "require_text", "whole_number", "whole_numbers"]

AnyPath = str | os.PathLike[str]
"""A path, as a user of Python gives it."""


def path_of(name: str, value: AnyPath) -> Path:
    """The path that an argument names. Raises UsageError for what is none."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else value
    if not isinstance(text, str):
        raise _wrong(name, text, "a path")
    if not text:
        raise UsageError(None, f"{name} is an empty path", "use . for the current directory")
    return Path(text)


def require_text(**given: str | None) -> None:
    """Raise UsageError for an argument that is no text; None stands for one that is not given."""
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            raise _wrong(name, value, "text")


def patterns(name: str, texts: str | Iterable[str]) -> tuple[str, ...]:
    """One pattern, or several. Raises UsageError for what is none."""
    if isinstance(texts, str):
        return (texts,)
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise _wrong(name, texts, "text, or several texts")
    several = tuple(texts)
    for one in several:
        if not isinstance(one, str):
            raise _wrong(name, one, "text, or several texts")
    return several


def whole_number(name: str, value: int) -> int:
    """A whole number, of Python or numpy. Raises UsageError for what is none; truth is none."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise _wrong(name, value, "a whole number")
    return operator.index(value)


def whole_numbers(name: str, values: int | Iterable[int]) -> tuple[int, ...]:
    """One whole number, or several. Raises UsageError for what is none."""
    several = values if isinstance(values, Iterable) and not isinstance(values, str) else (values,)
    return tuple(whole_number(name, one) for one in several)


def _wrong(name: str, value: object, what: str) -> UsageError:
    return UsageError(None, f"{name} is {type(value).__name__}, not {what}")
