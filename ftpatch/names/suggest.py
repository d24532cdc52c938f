# SPDX-License-Identifier: MIT
"""Suggestions for an unknown word."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable

from ftpatch.errors import UsageError

__all__ = ["SHOWN", "any_of", "meant", "near", "require_known"]

SHOWN = 3
"""Maximum number of suggestions."""
ALIKE = 0.6
"""Similarity from which on a word may have been meant, from 0 to 1: difflib's own."""


def near(text: str, known: Collection[str], alike: float = ALIKE) -> list[str]:
    """The words similar to ``text``, at most SHOWN; those that differ only in case alone."""
    same = [word for word in known if word.casefold() == text.casefold()]
    return same[:SHOWN] or difflib.get_close_matches(text, known, SHOWN, alike)


def meant(names: Iterable[str], otherwise: str) -> str:
    """Ask for one of at most SHOWN names; ``otherwise`` if there are none."""
    like = [*dict.fromkeys(names)][:SHOWN]
    return f"did you mean {' or '.join(like)}?" if like else otherwise


def any_of(names: Iterable[str]) -> str:
    """``a, b or c``."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def require_known(what: str, name: str, known: Collection[str]) -> None:
    """Raise UsageError unless the ``name`` of a ``what`` (a format) is one of these."""
    if name not in known:
        parts = [word for word in known if name in re.split("[_-]", word)]
        hint = meant(parts or near(name, known), f"use {any_of(known)}")
        raise UsageError(None, f"unknown {what} {name!r}", hint)
