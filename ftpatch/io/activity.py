# SPDX-License-Identifier: MIT
"""Activities of a command, and how far each is: told where the work is, shown by whoever has a
terminal to show it on.

    with doing("unpacking", size) as now:
        ...
        now.done = at
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

__all__ = ["ACTIVITIES", "Activities", "Activity", "doing"]


@dataclass(eq=False)
class Activity:
    """One thing that is being done: ``done`` of ``total`` (0: not known), which are pieces that a
    reader can count if ``counted``."""

    what: str
    total: int = 0
    counted: bool = False
    done: int = 0
    begun: float = field(default_factory=time.monotonic)


class Activities:
    """All that is being done: the latest is what the others wait for."""

    def __init__(self) -> None:
        self.on_away: Callable[[], None] = lambda: None
        self._open: list[Activity] = []
        self._away = 0

    @property
    def latest(self) -> Activity | None:
        """The one to show."""
        return next(reversed(self._open), None)

    @property
    def is_away(self) -> bool:
        """True while the terminal is another program's."""
        return self._away > 0

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Leave the terminal to another program, or to what draws on all of it."""
        self._away += 1
        self.on_away()
        try:
            yield
        finally:
            self._away -= 1

    @contextlib.contextmanager
    def doing(self, what: str, total: int = 0, *, counted: bool = False) -> Iterator[Activity]:
        """Do something, which is shown if it takes long."""
        now = Activity(what, total, counted)
        self._open.append(now)
        try:
            yield now
        finally:
            self._open.remove(now)


ACTIVITIES = Activities()
"""Of this process."""
doing = ACTIVITIES.doing
