# SPDX-License-Identifier: MIT
"""Undo: take back the journal's latest block, or all blocks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.changes import NO_OWNER, Changes, Kind
from ftpatch.core.journal import Block
from ftpatch.elf.skeleton import read_skeleton
from ftpatch.errors import InputError, SiteRefused
from ftpatch.image import Image
from ftpatch.image.container import RawKind
from ftpatch.image.payload import read_payload
from ftpatch.image.unsigned import unsigned_header
from ftpatch.image.wrapping import rewrap, surrounds
from ftpatch.io.output import Copy
from ftpatch.write.write import write

__all__ = ["Undo", "plan_undo", "require_undoable", "restored", "take_back"]


class NoJournal(InputError):
    """There is nothing to take back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """State of a file before ``blocks`` (the latest first): ``changes`` back to the old
    bytes, the ``length`` to cut to (bytes) and the ``tail`` that follows. ``packed`` is
    the compressed file that held it, ``identical`` whether that is the very file."""

    blocks: tuple[Block, ...]
    changes: Changes
    length: int
    tail: bytes
    packed: bytes = b""
    identical: bool = True


def plan_undo(image: Image, *, everything: bool = False) -> Undo:
    """Take back the latest block, or all.

    Raises NoJournal where there is none, SiteRefused where the new bytes are not there any
    more.
    """
    image.require_writable()
    blocks = image.blocks
    if not blocks:
        raise NoJournal(image.path, "no journal: nothing to undo", "strip and objcopy remove it")
    nested = next((row for row, one in enumerate(blocks) if one.nested), len(blocks))
    if everything and nested < len(blocks):
        return _in_turn(image, _plan(image, blocks[:nested]))
    return _plan(image, blocks if everything else blocks[:1])


def restored(image: Image, undo: Undo) -> Image:
    """The image as it is after ``undo``, in memory."""
    data = image.data.copy()
    undo.changes.put(data)
    return image.holding(np.concatenate([data[: undo.length], np.frombuffer(undo.tail, np.uint8)]))


def _in_turn(image: Image, first: Undo) -> Undo:
    """Take back the blocks of ``first``, and then those that they kept, and all others."""
    between = restored(image, first)
    then = plan_undo(between, everything=True)
    last = restored(between, then).data
    length = min(first.length, then.length)
    spread = [one.changes.spread() for one in (first, then)]
    where = np.unique(np.concatenate([at[within] for at, within in spread]))
    where = where[where < length]
    changes = Changes.of(
        Kind.LITERAL, where, image.data[where][:, None], last[where][:, None], NO_OWNER
    )
    return Undo(
        blocks=(*first.blocks, *then.blocks),
        changes=changes,
        length=length,
        tail=last[length:].tobytes(),
    )


def _plan(image: Image, blocks: Sequence[Block]) -> Undo:
    # What a command leaves unsigned may have been signed since.
    signature = unsigned_header(image)
    own = image.altered([signature]) if len(signature) else image
    left = own.altered([block.changes for block in reversed(blocks)])
    before = _before(own, blocks)
    touched = Changes.concat([block.changes for block in blocks])
    changed = touched.offset[(touched.held(own.data) != touched.held(left.data)).any(axis=1)]
    touched = Changes.concat([touched, signature.take(~np.isin(signature.offset, touched.offset))])
    now, then = touched.held(image.data), touched.held(before.data)
    if len(changed):
        raise SiteRefused(
            image.path,
            f"{len(changed)} locations differ from what the journal recorded, the first at "
            f"file offset {int(changed.min()):#x}",
            "the file was modified by something else",
        )
    oldest = blocks[-1]
    length = oldest.length - len(oldest.cut)
    data = before.data[:length]
    if oldest.cut:
        data = np.concatenate([data, np.frombuffer(oldest.cut, np.uint8)])
    _require_image(before, data)
    packed, identical = _packed(image, oldest, data) if image.layers else (b"", True)
    changes = replace(touched, old=now, new=then)
    return Undo(
        blocks=tuple(blocks),
        changes=changes,
        length=length,
        tail=oldest.cut,
        packed=packed,
        identical=identical,
    )


def require_undoable(image: Image) -> None:
    """Raise what undoing the whole journal would raise, before an image is overwritten: what cannot
    be undone must not be written."""
    if not image.blocks:
        return
    try:
        plan_undo(image, everything=True)
    except (InputError, SiteRefused) as error:
        hint = "`ftpatch undo` would refuse this file; start from the original"
        raise type(error)(error.path, error.reason, hint) from None


def take_back(copy: Copy, image: Image, undo: Undo) -> None:
    """Write the result of plan_undo() to ``copy`` and publish it. Raises OutputError."""
    write(
        copy,
        image,
        undo.changes,
        journal=False,
        length=undo.length,
        tail=undo.tail,
        packed=undo.packed,
    )


def _before(image: Image, blocks: Sequence[Block]) -> Image:
    """The image with blocks reverted. What the oldest cut off may have what the headers tell."""
    changes, oldest = [block.changes for block in blocks], blocks[-1]
    if not oldest.cut or not (image.is_program or image.is_library):
        return image.altered(changes, old=True)
    data = image.data.copy()
    for one in changes:
        one.put(data, old=True)
    cut = np.frombuffer(oldest.cut, np.uint8)
    return image.holding(np.concatenate([data[: oldest.length - len(cut)], cut]))


def _packed(image: Image, block: Block, data: NDArray[np.uint8]) -> tuple[bytes, bool]:
    """The compressed file that held ``data``, and whether it is identical to the original. That is
    unknown if the journal is an old one, if another version of the compressor is installed, or if
    the file was compressed anew by other means."""
    if block.packed:
        limit = len(data) * len(image.layers)
        held = read_payload(image.path, memoryview(block.packed), limit)
        if [layer.name for layer in held.layers] == [layer.name for layer in image.layers]:
            told = hashlib.sha256(block.packed).digest() == block.digest
            same = np.array_equal(np.frombuffer(held.data, np.uint8), data)
            if not told or not same or not surrounds(image.layers, held.layers):
                raise InputError(image.path, "journal: the compressed file it keeps does not match")
            return block.packed, True
    end = None if image.carrier is None else block.before
    packed = rewrap(image.path, image.layers, data, built=image.built, end=end)
    return packed, hashlib.sha256(packed).digest() == block.digest


def _require_image(before: Image, data: NDArray[np.uint8]) -> None:
    """Refuse what no command can have written: a forged block could restore anything."""
    if isinstance(before.container, RawKind) and before.container.begins(data.data):
        return
    try:
        read_skeleton(str(before.path), data)
    except InputError as error:
        raise InputError(
            before.path, f"journal: the restored file would not be an image: {error.reason}"
        ) from None
