# SPDX-License-Identifier: MIT
"""Differences between two images: sites, records, and every other byte."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ftpatch.diff.other_bytes import byte_differences, same_layout
from ftpatch.diff.site_pairs import Pairs, pair_sites, table_order
from ftpatch.ftrace.sites import Sites

__all__ = ["Diff", "Difference", "compare"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference. ``kind`` is ``site``, ``record``, ``added``, ``removed``, or what other bytes
    are (``literal``, ``relocation``, ``header``, ``code``, ``data``, ``signature``, ``laid in``,
    ``journal``, ``appended``).

    ``address`` is virtual, or a file offset where ``address`` is None; ``old`` and ``new`` are the
    text of both sides.
    """

    kind: str
    address: int | None
    offset: int
    symbol: str
    old: str
    new: str


@dataclass(frozen=True, kw_only=True)
class Diff:
    """The comparison of two images: ``pairs`` of sites in columns, and the ``others``."""

    before: Sites
    after: Sites
    pairs: Pairs
    others: tuple[Difference, ...]
    same_layout: bool

    @property
    def identical(self) -> bool:
        """True if nothing differs. Images of another layout may have the same sites."""
        return not len(self) and self.same_layout

    def __len__(self) -> int:
        return len(self.pairs) + len(self.others)

    def sites(self, limit: int | None = None) -> Iterator[Difference]:
        """Site and record differences as text, in the order of addresses; at most ``limit``."""
        yield from (Difference(*row) for row in self.pairs.rows(self.before, self.after, limit))


def compare(before: Sites, after: Sites) -> Diff:
    """Compare two images, by address, or by symbol where addresses moved.

    Bytes outside of sites are compared only where both have the same layout: between two builds
    everything differs.
    """
    pairs = pair_sites(before, after)
    others = [Difference(*row) for row in pairs.unpaired(before, after)]
    alike = same_layout(before, after)
    if alike:
        others += [Difference(*row) for row in table_order(before, after)]
        others += [Difference(*row) for row in byte_differences(before, after)]
    return Diff(before=before, after=after, pairs=pairs, others=tuple(others), same_layout=alike)
