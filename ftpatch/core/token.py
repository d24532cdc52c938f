# SPDX-License-Identifier: MIT
"""Tokens of a command, each with its column: messages point at it.

ftrace keeps the command and a position for each error and draws a caret below
(``__trace_probe_log_err`` in kernel/trace/trace_probe.c). One line has no second one for a caret,
so it names the token and its column.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ftpatch.errors import UsageError

__all__ = ["SYMBOL", "Token", "read_number", "words_of"]

SYMBOL = re.compile(r"[^\W\d][\w.$@?~]*|\.[\w.$@?~]+")
"""A symbol as grammars take it: what assemblers, mangled names and symbol versions need, and no
character that stands for something else (``+ - % : ( ) =``)."""
DIGITS = 70
"""Characters of a number at most. 64 bits need 22 in octal; a few zeros may stand before."""
LONG_PIECE, LONG_WHOLE = 60, 120
"""Characters of either that a message shows."""
NESTED = 32
"""Brackets within each other that may have spaces."""
_BRACKETS = re.compile(r"\([^()<>$@%+=]*\)(?: const(?!\S))?|<[^()<>$@%+=]*>")
"""The innermost ones that have nothing of a FETCH."""
_NUMBER = re.compile(r"(0[xX])([0-9a-fA-F]+)|(0)([0-7]*)|()([1-9][0-9]*)")
_BASES = {"0x": 16, "0": 8, "": 10}


@dataclass(frozen=True, slots=True)
class Token:
    """Characters ``start`` to ``stop`` of the text ``whole``."""

    whole: str
    start: int
    stop: int

    @classmethod
    def of(cls, text: str) -> Token:
        """All of a text, without the white space around it, as the kernel's strstrip."""
        bare = text.strip()
        return cls(bare, 0, len(bare))

    @property
    def text(self) -> str:
        """Text of the token."""
        return self.whole[self.start : self.stop]

    def cut(self, start: int, stop: int | None = None) -> Token:
        """A part of it; ``start`` and ``stop`` count from its own start (characters)."""
        end = self.stop if stop is None else self.start + stop
        return Token(self.whole, self.start + start, end)

    def refuse(self, clause: str, hint: str = "") -> UsageError:
        """The error that says ``clause`` of this token, and where it stands (column from 1)."""
        if not self.text:
            where = f", at column {self.start + 1} of {_shown(self.whole, LONG_WHOLE)}"
        elif self.text == self.whole:
            where = f": {_shown(self.whole, LONG_WHOLE)}"
        else:
            where = f": {_shown(self.text, LONG_PIECE)} at column {self.start + 1}"
            where += f" of {_shown(self.whole, LONG_WHOLE)}"
        return UsageError(None, clause + where, hint)


def words_of(text: str) -> list[Token]:
    """The words of a command, divided by white space (``argv_split`` in lib/argv_split.c), but for
    that between brackets of a source's name, as in ``add(int, char const*) const``."""
    whole = held = Token.of(text).whole
    for _ in range(NESTED):
        before, held = held, _BRACKETS.sub(lambda found: "x" * len(found[0]), held)
        if held == before:
            break
    return [Token(whole, *found.span()) for found in re.finditer(r"\S+", held)]


def read_number(text: str) -> int | None:
    """An unsigned number of at most 64 bits, as kstrtoull reads it with base 0 (lib/kstrtox.c):
    hexadecimal behind ``0x``, octal behind ``0``, else decimal. None for anything else."""
    found = _NUMBER.fullmatch(text) if len(text) <= DIGITS else None
    if found is None:
        return None
    prefix, digits = (group for group in found.groups() if group is not None)
    value = int(digits or "0", _BASES[prefix.lower()])
    return value if value < 1 << 64 else None


def _shown(text: str, longest: int) -> str:
    return repr(text) if len(text) <= longest else f"{text[:longest]!r}..."
