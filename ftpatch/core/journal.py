# SPDX-License-Identifier: MIT
"""The undo record that ftpatch appends to a file it writes.

Each command appends one block behind everything else, outside every segment:

    | file as it was, less what was cut from its end | laid-in bytes | payload | trailer |
                                                                     ^ zlib    ^ 56 bytes

    trailer: magic (8) | version (4) | count (4) | length before (8) | cut (8)
             | payload bytes (8) | unpacked bytes (8) | CRC-32 of payload and trailer (4) | zero (4)

    payload: count times each of offset (8, signed difference to the one before) | owner (8)
             | width (2) | kind (1); then the old bytes, the new bytes, and what was cut;
             in version 2, of a file that is compressed, then the SHA-256 (32) of the whole file
             as it was, and that file; or nothing, where write.py would compress it to the same.

Of a kernel in a container with a place of its own, such as a bzImage, the block lies behind the
container (version 3), since there is no room in it:

    | container | earlier blocks | payload | trailer |     | certificates, if it is signed |
                                 ^ "cut"

Its offsets are in the payload, and so is ``length``; ``cut`` is the offset at which what precedes
the block ends.

A command that does anew what earlier ones did cuts all that these appended, their blocks too, and
its own holds them: they are read from what it cut.

    | file as it was before them | laid-in bytes | payload: ... , laid-in bytes and block before |

All numbers are little-endian. A block is untrusted input: a torn one (wrong magic or CRC) is
ignored, one that contradicts itself is an error.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.changes import Changes, Kind, Space
from ftpatch.errors import InputError

__all__ = ["MAX_NESTED", "Block", "journalled", "outer", "pack_block", "read_blocks"]

MAGIC = b"\x7fftpatch"
VERSION, COMPRESSED, BEHIND = 1, 2, 3
"""Versions of a block. The first says all of a file that is not compressed."""
ALIGNMENT = 8
"""Of the end of a block where certificates may follow (bytes): theirs (Microsoft PE/COFF, "The
Attribute Certificate Table"), so that signing adds nothing between."""
DIGEST = 32
TRAILER = struct.Struct("<8sIIQQQQ")
SEAL = struct.Struct("<II")
FIXED = 8 + 8 + 2 + 1
"""Unpacked bytes of a Change, besides its old and new bytes."""
MAX_BLOCK = 1 << 30
"""Largest unpacked block (bytes); 50,000 sites take 3 MB."""
MAX_NESTED = 256
"""Blocks that may lie one in another."""
SLACK = 1 << 20
"""Bytes by which a compressed file may be larger than what it holds."""


@dataclass(frozen=True, slots=True)
class Block:
    """One command's Changes. The file was ``length`` bytes long before it, of which the last
    ``len(cut)`` were cut off; what was inserted behind that has ``laid`` bytes. The block begins at
    offset ``start`` and ends at ``end``; what stood there before it ends at ``before``. ``digest``
    and ``packed`` are of the compressed file that held it: SHA-256 and contents; both or the latter
    may be empty. A ``nested`` one lies in what a later one cut off: of its ``changes`` those are
    told that are in the file before that."""

    changes: Changes
    length: int
    cut: bytes
    laid: int
    before: int
    start: int
    end: int
    digest: bytes = b""
    packed: bytes = b""
    nested: bool = False


def outer(path: Path, held: bytes, length: int, *, known: bool) -> bytes:
    """Return what a block keeps of the compressed file ``held``, whose contents have ``length``
    bytes; ``known``: they will be compressed to the same again. Raises InputError for one that is
    larger than its contents, so that no block unpacks to much more than the file can need."""
    if len(held) > length + SLACK:
        raise InputError(path, "larger than its contents", "recompress it")
    return hashlib.sha256(held).digest() + (b"" if known else held)


def pack_block(
    changes: Changes,
    length: int,
    cut: bytes = b"",
    outside: bytes = b"",
    *,
    start: int | None = None,
    behind: bool = False,
) -> bytes:
    """The block for Changes to a file of ``length`` bytes, to be appended to it; ``outside`` is
    what outer() gives. With ``start``, the offset at which it will begin, it ends at a multiple of
    eight bytes. With ``behind`` that is behind a container whose payload has ``length`` bytes."""
    if changes.space != Space.FILE:
        raise ValueError("a journal is of a file")
    changes = changes.ordered()
    _, within = changes.spread()
    offset = np.diff(changes.offset, prepend=np.int64(0))
    parts = (
        offset.astype("<i8"),
        changes.owner.astype("<u8"),
        changes.width.astype("<u2"),
        changes.kind,
        changes.old[within],
        changes.new[within],
    )
    raw = b"".join(part.tobytes() for part in parts) + cut + outside
    version = BEHIND if behind else COMPRESSED if outside else VERSION
    stands = start or 0 if behind else len(cut)
    payload = zlib.compress(raw, 1)
    if start is not None:
        # Zeros behind the end that zlib's stream has itself.
        size = len(payload) + TRAILER.size + SEAL.size
        payload += bytes(-(start + size) % ALIGNMENT)
    head = TRAILER.pack(MAGIC, version, len(changes), length, stands, len(payload), len(raw))
    return payload + head + SEAL.pack(zlib.crc32(head, zlib.crc32(payload)), 0)


def read_blocks(path: Path, data: NDArray[np.uint8], inside: int | None = None) -> list[Block]:
    """The blocks at the end of a file (``data`` is uint8[size]), the latest first; ``inside``: of a
    container whose payload has so many bytes.

    Raises InputError for a block that is whole but contradicts itself or the file.
    """
    blocks = list(_blocks(path, data, inside))
    # Columns of all blocks are joined, as wide as the widest Change of all.
    widest = max((block.changes.old.shape[1] for block in blocks), default=0)
    if widest * sum(len(block.changes) for block in blocks) > MAX_BLOCK // 4:
        raise InputError(path, "journal: invalid widths")
    return blocks


def journalled(blocks: Sequence[Block], kind: Kind) -> Changes:
    """The Changes of one kind that all blocks tell of, the latest block's first."""
    parts = (block.changes for block in blocks)
    return Changes.concat(part.take(part.kind == kind) for part in parts)


def _blocks(path: Path, data: NDArray[np.uint8], inside: int | None) -> Iterator[Block]:
    end, nested = len(data), 0
    size = TRAILER.size + SEAL.size
    left = end  # what lies behind it is in a block
    while end >= size:
        trailer = data[end - size : end].tobytes()
        magic, version, count, length, cut, packed, unpacked = TRAILER.unpack_from(trailer)
        crc, _ = SEAL.unpack_from(trailer, TRAILER.size)
        if magic != MAGIC or packed > end - size:
            return
        payload = data[end - size - packed : end - size].tobytes()
        if zlib.crc32(trailer[: TRAILER.size], zlib.crc32(payload)) != crc:
            return
        if version not in (VERSION, COMPRESSED, BEHIND):
            raise InputError(
                path,
                f"unsupported journal version {version}",
                "use the version of ftpatch that wrote it",
            )
        before = length - cut
        if version == BEHIND:
            before, cut = cut, 0
        if (version == BEHIND) != (inside is not None) or (inside or length) != length:
            raise InputError(path, "journal: of another file", "start from the original")
        if before < 0 or before > end - size - packed:
            raise InputError(path, "journal: the original length is longer than the file")
        # Changes do not overlap, so there is at most one per byte of the file.
        most = (FIXED + 3) * length + (DIGEST + length + SLACK) * (version != VERSION)
        raw = _unpack(path, payload, unpacked, most)
        changes, tail = _parse(path, raw, count, length - cut)
        behind = 0 if version == VERSION else DIGEST
        if len(tail) < cut + behind or (not behind and len(tail) != cut):
            raise InputError(path, "journal: inconsistent lengths")
        digest, held = tail[cut : cut + behind], tail[cut + behind :]
        found = Block(
            changes=changes,
            length=length,
            cut=tail[:cut],
            laid=0 if version == BEHIND else end - size - packed - before,
            before=before,
            start=end - size - packed,
            end=end,
            digest=digest,
            packed=held,
        )
        yield found if end <= left else _within(found, left)
        end = before
        if version == VERSION and tail[max(cut - size, 0) : cut].startswith(MAGIC):
            nested += 1
            if nested > MAX_NESTED:
                raise InputError(path, f"journal: more than {MAX_NESTED} blocks in one another")
            data = np.concatenate([data[:before], np.frombuffer(tail[:cut], np.uint8)])
            end, left = len(data), min(left, before)


def _within(block: Block, end: int) -> Block:
    """A block in what a later one cut off from offset ``end`` on."""
    changes = block.changes
    left = changes.take(changes.offset + changes.width <= end)
    return replace(block, changes=left, laid=0, start=end, end=end, nested=True)


def _unpack(path: Path, payload: bytes, unpacked: int, most: int) -> bytes:
    if unpacked > min(most, MAX_BLOCK):
        raise InputError(path, f"journal: unpacks to {unpacked} bytes, more than the file allows")
    inflate = zlib.decompressobj()
    try:
        raw = inflate.decompress(payload, unpacked + 1)
    except zlib.error as error:
        raise InputError(path, f"journal: {error}") from None
    if len(raw) != unpacked or not inflate.eof:
        raise InputError(path, "journal: does not unpack to the stated size")
    return raw


def _parse(path: Path, raw: bytes, count: int, limit: int) -> tuple[Changes, bytes]:
    """Changes within the first ``limit`` bytes of the file, and what follows them in ``raw``."""
    if count * FIXED > len(raw):
        raise InputError(path, "journal: inconsistent lengths")
    offset = np.cumsum(np.frombuffer(raw, "<i8", count))
    owner = np.frombuffer(raw, "<u8", count, 8 * count)
    width = np.frombuffer(raw, "<u2", count, 16 * count)
    kind = np.frombuffer(raw, "u1", count, 18 * count)
    total = int(width.sum(dtype=np.int64))
    at = FIXED * count
    if at + 2 * total > len(raw):
        raise InputError(path, "journal: inconsistent lengths")
    if (kind > max(Kind)).any():
        raise InputError(path, "journal: unknown kind of change")
    inside = (offset >= 0) & (offset <= limit) & (offset + width <= limit)
    if not inside.all() or (offset[1:] < offset[:-1] + width[:-1]).any():
        raise InputError(path, "journal: changes overlap or lie outside of the file")
    k = int(width.max(initial=1))
    if count * k > max(64 * total, 1 << 16):
        raise InputError(path, "journal: invalid widths")
    within = np.arange(k) < width[:, None]
    old, new = np.zeros((count, k), np.uint8), np.zeros((count, k), np.uint8)
    old[within] = np.frombuffer(raw, np.uint8, total, at)
    new[within] = np.frombuffer(raw, np.uint8, total, at + total)
    changes = Changes(
        offset=offset,
        width=width.astype(np.uint16),
        old=old,
        new=new,
        kind=kind.copy(),
        owner=owner.astype(np.uint64),
    )
    return changes, raw[at + 2 * total :]
