# SPDX-License-Identifier: MIT
"""Reads the layouts, and packs and unpacks what has one.

Numbers are in the byte order of the machine that the runtime is for: an architecture's is in its
layout; of a file, which is read without knowing that, whoever reads it tells.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ftpatch.core.byte_order import BIG, LITTLE, ByteOrder
from ftpatch.errors import InputError

__all__ = ["constants", "offset_of", "pack", "structure", "texts", "unpack"]

FOLDER = Path(__file__).parent


@lru_cache
def _layout(arch: str | None) -> dict[str, Any]:
    """The file of an architecture; without, of any."""
    path = min(FOLDER.glob("*.json")) if arch is None else FOLDER / f"{arch}.json"
    if not path.is_file():
        raise InputError(None, f"no runtime for {arch}")
    held: dict[str, Any] = json.loads(path.read_text())
    return held


@lru_cache
def structure(name: str, arch: str | None = None) -> np.dtype[np.void]:
    """The dtype of a C structure, without an array at its end that has no size. Text is bytes
    (``S``), arrays of bytes are ``V``. Numbers are little-endian without an architecture
    (``ByteOrder.record`` makes others of them), else the architecture's own. Raises InputError for
    an architecture without a runtime."""
    held = _layout(arch)["structures"][name]
    members = {key: one for key, one in held["members"].items() if one.get("count", 1)}
    little = np.dtype(
        {
            "names": list(members),
            "formats": [_dtype(one["type"], one.get("count"), arch) for one in members.values()],
            "offsets": [one["at"] for one in members.values()],
            "itemsize": held["size"],
        }
    )
    return (BIG if _layout(arch).get("big_endian") else LITTLE).record(little)


def offset_of(name: str, member: str, arch: str | None = None) -> int:
    """The offset of a structure's member (bytes)."""
    return int(_layout(arch)["structures"][name]["members"][member]["at"])


def pack(name: str, order: ByteOrder, /, **values: object) -> bytes:
    """One structure with these members; the others are zero."""
    record = np.zeros((), order.record(structure(name)))
    for member, value in values.items():
        record[member] = value
    return record.tobytes()


def unpack(name: str, order: ByteOrder, raw: bytes, at: int = 0) -> dict[str, Any]:
    """The members of a structure that begins ``at`` this byte: numbers as int, lists of them for
    arrays, the rest as bytes, texts without the NULs at their ends."""
    dtype = order.record(structure(name))
    assert dtype.names is not None
    record = np.frombuffer(raw, dtype, 1, at)[0]
    return {member: record[member].tolist() for member in dtype.names}


def _dtype(type: str, count: int | None, arch: str | None) -> np.dtype[Any]:
    """Of a member, an array if ``count`` is not None."""
    if type == "char":
        return np.dtype(f"S{count or 1}")
    if type == "u8" and count is not None:
        return np.dtype(f"V{count}")
    if type.startswith("struct "):
        base: np.dtype[Any] = structure(type.removeprefix("struct "), arch)
    else:
        base = np.dtype(f"<{'i' if type[0] == 's' else 'u'}{int(type[1:]) // 8}")
    return base if count is None else np.dtype((base, (count,)))


constants: Mapping[str, int] = _layout(None)["constants"]
"""Enumeration constants by their names in C."""
texts: Mapping[str, bytes] = {
    name: text.encode("ascii") for name, text in _layout(None)["texts"].items()
}
"""Texts by their macros in C, with the NULs that belong to them."""
