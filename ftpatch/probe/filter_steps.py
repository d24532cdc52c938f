# SPDX-License-Identifier: MIT
"""A filter as the runtime's steps: comparisons that lead on, or forward over others.

n > 3 && (name ~ "lib*" || m)      n > 3     false: jump ─────────────────────┐
                                   name ~ …  true:  jump ──────────┐          │
                                   m != 0    false: jump ──────────│──────────┤
                                   the probe's fetches  <──────────┘          │
                                   (the hit is not recorded)  <───────────────┘
"""

from __future__ import annotations

from collections.abc import Callable

from ftpatch.errors import UsageError
from ftpatch.layout import constants
from ftpatch.probe.definition import Compare, Count, Fetch, Filter, Join, Not
from ftpatch.probe.steps import Row, Step, form, signed, value_steps

__all__ = ["filter_steps"]

KEPT, JUMP, BELOW, EQUAL, ABOVE, BITS, GLOB, SKIP = (
    constants[f"TEST_{name}"]
    for name in ("KEPT", "JUMP", "BELOW", "EQUAL", "ABOVE", "BITS", "GLOB", "SKIP")
)
FARTHEST = (1 << (32 - SKIP)) - 1
"""Maximum number of steps a jump leads over."""
WORD = 8
TRUE_FOR = {
    "==": EQUAL,
    "!=": BELOW | ABOVE,
    "<": BELOW,
    "<=": BELOW | EQUAL,
    ">": ABOVE,
    ">=": ABOVE | EQUAL,
    "&": BITS,
}
"""Numbers: when the left one is so."""
ALIKE_FOR = {"==": EQUAL, "!=": 0, "~": GLOB | EQUAL}
"""Strings."""


class _Label:
    """A place that jumps lead to, known once it is reached."""

    at = -1


def filter_steps(filter: Filter, load: Callable[[Fetch], list[Row]]) -> list[Row]:
    """Translate a filter. ``load`` gives the steps of a fetch, of which the last stores it. Raises
    UsageError for one that is too long."""
    steps = _Steps(load)
    refused = _Label()
    steps.add(filter, False, refused)
    return steps.placed(refused)


class _Steps:
    def __init__(self, load: Callable[[Fetch], list[Row]]) -> None:
        self._load = load
        self._rows: list[Row] = []
        self._jumps: list[tuple[int, _Label]] = []

    def add(self, filter: Filter, sense: bool, to: _Label) -> None:
        """Go to a label if the filter's result is ``sense``, else on."""
        match filter:
            case Not(part):
                self.add(part, not sense, to)
            case Join(operator, parts):
                decides = operator == "||"  # what one part alone decides
                end = _Label()
                for part in parts[:-1]:
                    self.add(part, decides, to if sense == decides else end)
                self.add(parts[-1], sense, to)
                end.at = len(self._rows)
            case Count(kind, number):
                every = kind == "every"
                self._rows.append((Step.COUNT if every else Step.FIRST, 0, number))
                self._jump(
                    WORD | (EQUAL if every else BELOW | EQUAL), 0 if every else number, sense, to
                )
            case Compare(left, operator, bytes(text)):
                self._rows += value_steps(self._load(left))
                words = [text[at : at + WORD] for at in range(0, len(text), WORD)]
                self._jump(ALIKE_FOR[operator], len(words), sense, to, Step.MATCH)
                for word in words:
                    number = int.from_bytes(word, "little")
                    self._rows.append((Step.TEXT, 0, signed(number)))
            case Compare(left, operator, Fetch() as right):
                self._rows += [*value_steps(self._load(right)), (Step.KEEP, form(right), 0)]
                self._rows += value_steps(self._load(left))
                self._jump(TRUE_FOR[operator] | form(left) | KEPT, 0, sense, to)
            case Compare(left, operator, int(number)):
                self._rows += value_steps(self._load(left))
                self._jump(TRUE_FOR[operator] | form(left), signed(number), sense, to)

    def placed(self, refused: _Label) -> list[Row]:
        """The steps with their jumps; ``refused`` lies one step behind their end."""
        refused.at = len(self._rows) + 1
        for row, label in self._jumps:
            step, what, value = self._rows[row]
            skip = label.at - row - 1
            if skip > FARTHEST:
                raise UsageError(None, "the filter is too long", "compare less")
            self._rows[row] = (step, what | skip << SKIP, value)
        return self._rows

    def _jump(self, what: int, value: int, sense: bool, to: _Label, step: Step = Step.TEST) -> None:
        self._jumps.append((len(self._rows), to))
        self._rows.append((step, what | JUMP * sense, value))
