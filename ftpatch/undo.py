"""Undo: the journal's latest block, or all of them, taken back."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ftpatch.changes import Changes
from ftpatch.errors import InputError, SiteRefused
from ftpatch.image import Image
from ftpatch.image.raw_image import is_raw_image
from ftpatch.image.skeleton import read_skeleton
from ftpatch.journal import Block, read_blocks

__all__ = ["Undo", "plan_undo"]


@dataclass(frozen=True, slots=True)
class Undo:
    """What a file was before ``blocks`` (the latest first): ``changes`` from what stands there to
    what stood there, the ``length`` to cut to (bytes) and the ``tail`` that follows."""

    blocks: tuple[Block, ...]
    changes: Changes
    length: int
    tail: bytes


def plan_undo(image: Image, *, everything: bool = False) -> Undo:
    """Take back the latest block, or all.

    Raises InputError where there is no journal, SiteRefused where the new bytes are not there any
    more.
    """
    image.require_writable()
    blocks = read_blocks(image.path, image.data[: image.end])
    if not blocks:
        raise InputError(
            image.path, "no journal: no command changed this file", "strip and objcopy remove it"
        )
    blocks = blocks if everything else blocks[:1]
    left = image.altered([block.changes for block in reversed(blocks)])
    before = image.altered([block.changes for block in blocks], old=True)
    touched = Changes.concat([block.changes for block in blocks])
    now, then = touched.held(image.data), touched.held(before.data)
    changed = touched.offset[(now != touched.held(left.data)).any(axis=1)]
    if len(changed):
        raise SiteRefused(
            image.path,
            f"{len(changed)} places do not hold what the journal says was written, the first at "
            f"file offset {int(changed.min()):#x}",
            "the file was changed by other means",
        )
    oldest = blocks[-1]
    length = oldest.length - len(oldest.cut)
    _require_image(before, length, oldest.cut)
    changes = replace(touched, old=now, new=then)
    return Undo(tuple(blocks), changes, length, oldest.cut)


def _require_image(before: Image, length: int, tail: bytes) -> None:
    """A forged block may give back anything; what no command can have written is refused."""
    data = before.data[:length]
    if tail:
        data = np.concatenate([data, np.frombuffer(tail, np.uint8)])
    if before.container == "Image" and is_raw_image(data):
        return
    try:
        read_skeleton(str(before.path), data)
    except InputError as error:
        raise InputError(
            before.path, f"journal: what it would give back is no image: {error.reason}"
        ) from None
