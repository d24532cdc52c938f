# SPDX-License-Identifier: MIT
"""Colours of states and verdicts, on a terminal that has them. The words say the same."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum
from typing import TextIO

__all__ = [
    "STATES",
    "Line",
    "Tone",
    "Word",
    "bad",
    "clean",
    "fine",
    "is_coloured",
    "is_drawn_on",
    "joined",
    "of_state",
    "painted",
    "some",
    "warn",
]

BOLD, RESET = "\x1b[1m", "\x1b[0m"
"""Select Graphic Rendition (ECMA-48, 8.3.117)."""


class Tone(StrEnum):
    """Colours of meanings, as parameters of Select Graphic Rendition."""

    FINE = "32"
    OFF = "36"
    WARN = "33"
    BAD = "31"


class Word(str):
    """Text with a meaning that has a colour."""

    tone: Tone

    def __new__(cls, text: str, tone: Tone) -> Word:
        """Make it of text."""
        word = super().__new__(cls, text)
        word.tone = tone
        return word


Line = str | tuple[str, ...]
"""Text, or the parts that make it, some of which may be Words."""
STATES = {
    "call": Tone.FINE,
    "nop": Tone.OFF,
    "unexpected": Tone.BAD,
    "dropped": Tone.WARN,
    "refused": Tone.BAD,
}
"""Colours of what becomes of sites and records."""


def fine(text: str) -> Word:
    """A verdict that all is well."""
    return Word(text, Tone.FINE)


def warn(text: str) -> Word:
    """A word of warning."""
    return Word(text, Tone.WARN)


def bad(text: str) -> Word:
    """An error, or what was found."""
    return Word(text, Tone.BAD)


def of_state(state: str, text: str | None = None) -> str:
    """The name of a state, or a text that is about it."""
    tone = STATES.get(state)
    text = state if text is None else text
    return text if tone is None else Word(text, tone)


def some(number: int, state: str, text: str | None = None) -> str:
    """A number of what is in this state, or a text with it: none of them is nothing to tell."""
    text = str(number) if text is None else text
    return of_state(state, text) if number else text


def joined(parts: Sequence[str], between: str) -> tuple[str, ...]:
    """Parts of a line, with ``between`` between them."""
    return tuple(one for part in parts for one in (between, part))[1:]


def clean(text: str) -> str:
    """Text from a file, fit for a terminal: what is not printable is escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def is_drawn_on(stream: TextIO) -> bool:
    """Return whether it is a terminal that does more than print."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def is_coloured(stream: TextIO) -> bool:
    """Return whether it is a terminal with colours, and they are wanted (no-color.org)."""
    return is_drawn_on(stream) and not os.environ.get("NO_COLOR")


def painted(line: Line, *, colours: bool) -> str:
    """The line as it is written, cleaned."""
    parts = (line,) if isinstance(line, str) else line
    if not colours:
        return "".join(map(clean, parts))
    return "".join(
        f"\x1b[{part.tone}m{clean(part)}{RESET}" if isinstance(part, Word) else clean(part)
        for part in parts
    )
