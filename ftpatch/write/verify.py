# SPDX-License-Identifier: MIT
"""The comparison before every write, as ftrace_modify_code makes it. Only this layer compares.

EFAULT: what should be there cannot be read, or is not code. EINVAL: something else stands there,
two Changes claim the same bytes, or the loader will write there. Nothing may be written unless
every Change passes.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.changes import NO_OWNER, Changes, Kind
from ftpatch.image import Image
from ftpatch.write.target import FileTarget, Target, require_space

__all__ = ["Verdict", "verify", "verify_image"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``errno`` uint8[n] of each of n Changes, 0 if it can be made; ``actual`` uint8[n, k]: the
    bytes found; ``overlaps`` bool[n]: refused because another Change claims the same bytes;
    ``relocated`` bool[n]: because a relocation would write over the new code."""

    changes: Changes
    errno: NDArray[np.uint8]
    actual: NDArray[np.uint8]
    overlaps: NDArray[np.bool_]
    relocated: NDArray[np.bool_]

    @property
    def passed(self) -> bool:
        """True if all can be written."""
        return not self.errno.any()

    def refused(self) -> NDArray[np.intp]:
        """Rows to report: the first refused Change of each owner, by owner."""
        rows = np.flatnonzero(self.errno)
        owner = self.changes.owner[rows]
        order = np.lexsort((self.changes.kind[rows], owner))
        rows, owner = rows[order], owner[order]
        first = np.ones(len(rows), bool)
        first[1:] = (owner[1:] != owner[:-1]) | (owner[1:] == NO_OWNER)
        return rows[first]


def verify(
    target: Target, changes: Changes, align: int, relocated: NDArray[np.bool_] | None = None
) -> Verdict:
    """Compare the old bytes of every Change with the target. ``align`` is that of an instruction
    (bytes), ``relocated`` bool[n] the places that a loader will overwrite. Mismatches are in the
    verdict; ValueError is raised only for Changes of another space."""
    require_space(target, changes)
    actual, inside = target.held(changes)
    outcome = np.zeros(len(changes), np.uint8)
    outcome[(actual != changes.old).any(axis=1)] = errno.EINVAL
    code = changes.kind == Kind.CODE
    outcome[code & (changes.owner % np.uint64(align) != 0)] = errno.EINVAL
    overlaps = _overlaps(changes.offset, changes.width.astype(np.int64)) & inside
    outcome[overlaps] = errno.EINVAL
    relocated = np.zeros(len(changes), bool) if relocated is None else relocated & inside
    outcome[relocated] = errno.EINVAL
    outcome[~inside] = errno.EFAULT
    return Verdict(
        changes=changes, errno=outcome, actual=actual, overlaps=overlaps, relocated=relocated
    )


def verify_image(
    image: Image, changes: Changes, align: int, written: NDArray[np.int64] | None = None
) -> Verdict:
    """Compare the old bytes of every Change with an image's file, and its place with the image's
    relocations. ``written`` int64[m]: the bytes that each relocation writes (default: a word)."""
    relocated = _relocated(image, changes, written)
    return verify(FileTarget(image.path, image.data), changes, align, relocated)


def _relocated(
    image: Image, changes: Changes, written: NDArray[np.int64] | None
) -> NDArray[np.bool_]:
    """Test which Changes of code and padding a relocation will overwrite, bool[n]."""
    address = image.elf.address_of(changes.offset)
    relocations = image.relocations
    if written is None:
        written = np.full(len(relocations.place), image.elf.word)
    # An entry changed along with the code no longer writes there, or is meant to.
    changed = changes.offset[changes.kind == Kind.RELOCATION]
    stays = ~np.isin(relocations.entry + image.elf.word, changed) | (not image.is_relocatable)
    width = changes.width.astype(np.int64)
    touched = relocations.touch(address, width, np.where(stays, written, 0)) > 0
    touched |= image.boot_relocations.touch(address, width)
    return np.isin(changes.kind, [Kind.CODE, Kind.PADDING]) & touched


def _overlaps(offset: NDArray[np.int64], width: NDArray[np.int64]) -> NDArray[np.bool_]:
    out = np.zeros(len(offset), bool)
    order = np.argsort(offset, kind="stable")
    end = np.maximum.accumulate((offset + width)[order])
    hit = offset[order][1:] < end[:-1]
    out[order[1:][hit]] = True
    out[order[:-1][hit]] = True
    return out
