# SPDX-License-Identifier: MIT
"""Suggestions for an unknown word."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

__all__ = ["SHOWN", "meant", "near"]

SHOWN = 3
"""Words that are offered at most."""


def near(text: str, known: Collection[str]) -> list[str]:
    """The words that ``text`` is nearly, at most SHOWN."""
    return difflib.get_close_matches(text, known, SHOWN)


def meant(names: Iterable[str], otherwise: str) -> str:
    """The question for at most SHOWN names; ``otherwise`` where there are none."""
    like = [*dict.fromkeys(names)][:SHOWN]
    return f"did you mean {' or '.join(like)}?" if like else otherwise
