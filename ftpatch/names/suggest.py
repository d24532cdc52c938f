# SPDX-License-Identifier: MIT
"""Suggestions for an unknown word."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

__all__ = ["SHOWN", "meant", "near"]

SHOWN = 3
"""Maximum number of suggestions."""
ALIKE = 0.6
"""Similarity from which on a word may have been meant, from 0 to 1: difflib's own."""


def near(text: str, known: Collection[str], alike: float = ALIKE) -> list[str]:
    """The words similar to ``text``, at most SHOWN."""
    return difflib.get_close_matches(text, known, SHOWN, alike)


def meant(names: Iterable[str], otherwise: str) -> str:
    """Ask for one of at most SHOWN names; ``otherwise`` if there are none."""
    like = [*dict.fromkeys(names)][:SHOWN]
    return f"did you mean {' or '.join(like)}?" if like else otherwise
