# SPDX-License-Identifier: MIT
"""Working one step ahead, in a thread of its own: numpy releases the GIL."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["ahead"]

T = TypeVar("T")


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield the items, computing the next one while the current one is used. What ``items`` raises
    is raised here, after the items that came before it."""
    with ThreadPoolExecutor(1) as pool:
        end: list[T] = []
        pending = pool.submit(_next, items, end)
        while (found := pending.result()) is not end:
            pending = pool.submit(_next, items, end)
            yield found[0]


def _next(items: Iterator[T], end: list[T]) -> list[T]:
    """The next item alone in a list, or ``end``."""
    for item in items:
        return [item]
    return end
