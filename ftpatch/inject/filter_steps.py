# SPDX-License-Identifier: MIT
"""A filter as the runtime's steps: comparisons that lead on, or forward over others.

n > 3 && (name ~ "lib*" || m)      n > 3     false: jump ─────────────────────┐
                                   name ~ …  true:  jump ──────────┐          │
                                   m != 0    false: jump ──────────│──────────┤
                                   behind the filter    <──────────┘          │
                                   (it is not recorded)       <───────────────┘
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, cast

from ftpatch.core.byte_order import LITTLE, ByteOrder
from ftpatch.core.filters import Compare, Count, Filter, Join, Not, Operand
from ftpatch.core.float_numbers import ordered
from ftpatch.errors import UsageError
from ftpatch.inject.runtime_steps import Row, Step, form, signed, value_steps
from ftpatch.layout import constants

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
Value = TypeVar("Value", bound=Operand)
Own = TypeVar("Own")


class _Label:
    """A place that jumps lead to, known once it is reached."""

    at = -1


def filter_steps(
    filter: Filter[Compare[Value] | Own],
    load: Callable[[Value], list[Row]],
    own: Callable[[Own], list[Row]],
    order: ByteOrder = LITTLE,
) -> list[Row]:
    """Translate a filter. ``load`` gives the steps of a value, of which the last stores it; ``own``
    those of a feature's own test, whose value then is not 0 if it is true; ``order`` is that of the
    program's words. Raises UsageError for one that is too long."""
    steps = _Steps(load, own, order)
    refused = _Label()
    steps.add(filter, False, refused)
    return steps.placed(refused)


class _Steps(Generic[Value, Own]):
    def __init__(
        self,
        load: Callable[[Value], list[Row]],
        own: Callable[[Own], list[Row]],
        order: ByteOrder,
    ) -> None:
        self._load, self._own, self._order = load, own, order
        self._rows: list[Row] = []
        self._jumps: list[tuple[int, _Label]] = []

    def add(self, filter: Filter[Compare[Value] | Own], sense: bool, to: _Label) -> None:
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
                    number = self._order.integer(word.ljust(WORD, b"\0"))
                    self._rows.append((Step.TEXT, 0, signed(number)))
            case Compare(left, operator, float(number)):
                self._rows += value_steps(self._load(left))
                what = TRUE_FOR[operator] | form(left)
                self._jump(what, ordered(number, left.type), sense, to)
            case Compare(left, operator, int(number)):
                self._rows += value_steps(self._load(left))
                self._jump(TRUE_FOR[operator] | form(left), signed(number), sense, to)
            case Compare(left, operator, other):
                right = cast("Value", other)
                self._rows += [*value_steps(self._load(right)), (Step.KEEP, form(right), 0)]
                self._rows += value_steps(self._load(left))
                self._jump(TRUE_FOR[operator] | form(left) | KEPT, 0, sense, to)
            case own:
                self._rows += self._own(own)
                self._jump(TRUE_FOR["!="] | WORD, 0, sense, to)

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
