# SPDX-License-Identifier: MIT
"""Values as the source names them: ``customer->name``, ``items[2].price``, ``*p``.

Text only: what they are, and where, stands in the debug information.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ftpatch.core.token import Token

__all__ = [
    "RETURNED",
    "WORD",
    "SourceName",
    "Step",
    "is_source_name",
    "parse_source_name",
    "splits",
]

RETURNED = "$retval"
STEPS = 32
"""Maximum number of members, elements and dereferences."""
INDEX = 1 << 31
WORD = re.compile(r"[^\W\d]\w*")
"""An identifier, as C, C++ and Rust have them in source: not of ASCII alone."""
_WORD = WORD.pattern
_NAME = rf"{_WORD}(?:::{_WORD})*"
_AFTER = rf"->{_NAME}|\.(?:{_NAME}|\w+)|\[-?[0-9]+\]"
_WHOLE = re.compile(rf"(\**)(\$retval(?=->|\.|\[|$)|{_NAME})((?:{_AFTER})*)")
_STEP = re.compile(_AFTER)
_TAIL = re.compile(rf"(?:{_AFTER})+\Z")


@dataclass(frozen=True, slots=True)
class Step:
    """A step from a value to a part of it: ``mark`` is ``->``, ``.``, ``[`` or ``*``; ``member`` is
    a name, ``index`` an element's. ``token``: where it stands; ``before``: what it is taken of."""

    mark: str
    token: Token
    before: Token
    member: str = ""
    index: int = 0


@dataclass(frozen=True, slots=True)
class SourceName:
    """A variable, or RETURNED, and the ``steps`` from it to the value."""

    name: Token
    steps: tuple[Step, ...]


def is_source_name(text: str) -> bool:
    """Test whether a value is written as the source would; a ``$retval`` alone is not."""
    return _WHOLE.fullmatch(text) is not None and text != RETURNED


def parse_source_name(value: Token) -> SourceName:
    """Split it. Raises UsageError."""
    found = _WHOLE.fullmatch(value.text)
    if found is None:
        raise value.refuse("no name of the source", "as in customer->name, items[2].price or *p")
    steps = _steps(value, found.start(2), found.end(2))
    for star in reversed(range(found.end(1))):
        steps.append(Step("*", value.cut(star, star + 1), value.cut(star + 1)))
    if len(steps) > STEPS:
        raise value.refuse("too many members", f"at most {STEPS}")
    return SourceName(value.cut(*found.span(2)), tuple(steps))


def splits(value: Token) -> list[SourceName]:
    """The ways to split what may begin with any name, such as ``sell(int)::calls.0``, the longest
    name first; none if no step is behind one. Raises UsageError."""
    tail = _TAIL.search(value.text)
    ends = [one.start() for one in _STEP.finditer(value.text, tail.start())] if tail else []
    if len(ends) > STEPS:
        raise value.refuse("too many members", f"at most {STEPS}")
    return [
        SourceName(value.cut(0, end), tuple(_steps(value, 0, end))) for end in reversed(ends) if end
    ]


def _steps(value: Token, start: int, end: int) -> list[Step]:
    """The steps behind the name from ``start`` to ``end``. Raises UsageError."""
    steps: list[Step] = []
    for one in _STEP.finditer(value.text, end):
        token, before = value.cut(*one.span()), value.cut(start, one.start())
        if one[0][0] == "[":
            index = int(one[0][1:-1]) if len(one[0]) < len(str(INDEX)) + 3 else INDEX
            if not -INDEX < index < INDEX:
                raise token.refuse("invalid index", "use a signed 32-bit number")
            steps.append(Step("[", token, before, index=index))
        else:
            mark = "->" if one[0].startswith("->") else "."
            steps.append(Step(mark, token, before, member=one[0].removeprefix(mark)))
    return steps
