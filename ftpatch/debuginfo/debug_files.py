# SPDX-License-Identifier: MIT
"""The file with an image's debug information: itself, or one that was split off from it.

As gdb looks for it ("Debugging Information in Separate Files"): by build-id, then by the name in
.gnu_debuglink (a name, a NUL, padding, and a CRC of the file); last in debuginfod's cache.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from ftpatch.elf.build_id import build_id
from ftpatch.elf.elf_file import Elf, map_file
from ftpatch.errors import FtpatchError

__all__ = ["debug_file"]

DEBUG = Path("/usr/lib/debug")
INFO = (".debug_info", ".zdebug_info")
CHUNK = 1 << 20


def debug_file(elf: Elf, path: Path) -> Path | None:
    """The file with the debug information of an image at ``path``; None if there is none."""
    if _has_info(elf):
        return path
    identity = build_id(elf)
    for one in _by_id(identity) if identity else ():
        if _is_of(one, identity):
            return one
    name, crc = _link(elf)
    for folder in _folders(path) if name else ():
        one = folder / name
        found = one.is_file() and not (path.exists() and one.samefile(path))
        if found and (_is_of(one, identity) if identity else _crc(one) == crc):
            return one
    return None


def _by_id(identity: str) -> Iterator[Path]:
    yield DEBUG / ".build-id" / identity[:2] / f"{identity[2:]}.debug"
    held = os.environ.get("DEBUGINFOD_CACHE_PATH")
    cache = os.environ.get("XDG_CACHE_HOME")
    home = Path(cache) if cache else Path("~/.cache").expanduser()
    for folder in [Path(held)] if held else [home / "debuginfod_client"]:
        yield folder / identity / "debuginfo"


def _folders(path: Path) -> list[Path]:
    """Where the name of a link is looked for."""
    folder = path.resolve().parent
    return [folder, folder / ".debug", DEBUG / folder.relative_to("/")]


def _has_info(elf: Elf) -> bool:
    return any(elf.section(name) is not None for name in INFO)


def _is_of(path: Path, identity: str) -> bool:
    """Return whether a file has the debug information of the image with this build-id."""
    try:
        data, mapped = map_file(path)
        elf = Elf.read(path, data, mapped=mapped)
        return _has_info(elf) and build_id(elf) == identity
    except (OSError, FtpatchError):
        return False


def _link(elf: Elf) -> tuple[str, int]:
    """The name and the CRC of .gnu_debuglink; no name if there is none."""
    section = elf.section(".gnu_debuglink")
    if section is None:
        return "", 0
    held = elf.data[section.offset : section.offset + section.size].tobytes()
    name, end, _ = held.partition(b"\0")
    if not end or b"/" in name or len(held) < len(name) + 5:
        return "", 0
    return os.fsdecode(name), elf.order.integer(held[-4:])


def _crc(path: Path) -> int:
    """The CRC-32 of a file; -1 if it cannot be read."""
    value = 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                value = zlib.crc32(chunk, value)
    except OSError:
        return -1
    return value
