# SPDX-License-Identifier: MIT
"""Differences between two images, or an image and what it was made from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ftpatch.api.writing import SUFFIX
from ftpatch.diff.diff import Difference, compare
from ftpatch.errors import UsageError

if TYPE_CHECKING:
    from ftpatch.ftrace.sites import Sites
    from ftpatch.image import Image

__all__ = ["Difference", "Differences", "sides_of"]


class Differences:
    """Differences of two images. Iterating gives a Difference for each, with ``kind``, ``address``
    (None: it has none), ``offset`` in the file, ``symbol``, ``old`` and ``new``, as in ``ftpatch
    diff --json``.

    ``identical``: nothing differs; two builds may have the same sites and not be identical.
    ``moved``: functions were compared by name.
    """

    def __init__(self, before: Sites, after: Sites) -> None:
        self._found = compare(before, after)
        self.identical: bool = self._found.identical
        self.moved: bool = self._found.pairs.moved

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Difference]:
        yield from self.sites()
        yield from self.others

    def __repr__(self) -> str:
        return f"<{len(self)} differences>"

    def sites(self, limit: int | None = None) -> Iterator[Difference]:
        """Those of sites and their records, of at most ``limit`` sites, by address."""
        return self._found.sites(limit)

    @property
    def others(self) -> tuple[Difference, ...]:
        """All others: sites that only one has, headers, appended bytes."""
        return self._found.others

    @property
    def paired(self) -> int:
        """Number of sites that both have and that differ."""
        return len(self._found.pairs.before)

    def groups(self) -> list[tuple[str, str, str, int]]:
        """Kind, old, new, and how many differ in this way, the most frequent first, as with
        ``--stat``."""
        others = Counter((row.kind, row.old, row.new) for row in self.others)
        return [
            *self._found.pairs.groups(self._found.before, self._found.after),
            *((*key, count) for key, count in others.most_common()),
        ]


def sides_of(image: Image, other: Path | None) -> tuple[Sites, Sites]:
    """Read an image and what to compare it with: another one, else the original that its journal
    restores, else its name + ``.ftpatch``. Return before and after. Raises UsageError where there
    is none."""
    from ftpatch.ftrace.sites import read_sites
    from ftpatch.image import open_image

    read = read_sites(image, bare=True)
    if other is not None:
        return read, read_sites(open_image(other), bare=True)
    if read.blocks:
        return read_sites(read.original, bare=True), read
    written = image.path.with_name(image.path.name + SUFFIX)
    if not written.exists():
        raise UsageError(image.path, "no journal and no " + written.name, "give two images")
    return read, read_sites(open_image(written), bare=True)
