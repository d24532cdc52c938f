# SPDX-License-Identifier: MIT
"""The mappings of a process, as /proc/PID/maps tells them (proc_pid_maps(5))."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ftpatch.errors import InputError
from ftpatch.process.process import Process
from ftpatch.process.refusals import why_not_accessed

__all__ = ["Mapping", "read_maps", "read_spans"]

LINE: Final = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) ([r-])([w-])([x-])([ps]) ([0-9a-f]+) (\S+) (\d+) *(.*)$"
)
SPAN: Final = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) ", re.MULTILINE)
DELETED: Final = b" (deleted)"


@dataclass(frozen=True, kw_only=True)
class Mapping:
    """Memory from ``start`` to ``end`` (addresses), of a file from ``offset`` on (bytes) if
    ``inode`` is not 0. ``path``: as the process was told it, escaped by the kernel; ``deleted``: it
    has this name no more."""

    start: int
    end: int
    readable: bool
    writable: bool
    executable: bool
    shared: bool
    offset: int
    device: bytes
    inode: int
    path: bytes
    deleted: bool

    @property
    def file(self) -> tuple[bytes, int]:
        """The file, which may have several names, or none."""
        return self.device, self.inode


def read_maps(process: Process) -> list[Mapping]:
    """All mappings by address. Raises InputError where the kernel does not show them."""
    found = [match for line in _text(process).split(b"\n") if (match := LINE.match(line))]
    if not found:
        if process.is_alive:
            raise InputError(None, f"{process}: its first thread has just ended", "try again")
        raise InputError(None, f"{process}: it has no memory any more: the process has ended")
    return [_mapping(match) for match in found]


def read_spans(process: Process) -> list[tuple[int, int]]:
    """The start and end of all mappings by address, for which a stopped process has not to wait as
    long. Raises InputError as ``read_maps``."""
    return [(int(start, 16), int(end, 16)) for start, end in SPAN.findall(_text(process))]


def _text(process: Process) -> bytes:
    try:
        return (process.place / "maps").read_bytes()
    except ProcessLookupError:
        return b""
    except FileNotFoundError:
        raise InputError(None, f"{process}: the process has ended") from None
    except PermissionError:
        raise why_not_accessed(process) from None


def _mapping(match: re.Match[bytes]) -> Mapping:
    start, end, r, w, x, sharing, offset, device, inode, path = match.groups()
    deleted = path.endswith(DELETED)
    return Mapping(
        start=int(start, 16),
        end=int(end, 16),
        readable=r == b"r",
        writable=w == b"w",
        executable=x == b"x",
        shared=sharing == b"s",
        offset=int(offset, 16),
        device=device,
        inode=int(inode),
        path=_unescaped(path[: -len(DELETED)] if deleted else path),
        deleted=deleted,
    )


def _unescaped(path: bytes) -> bytes:
    """A newline is the only byte that the kernel escapes here (seq_file_path())."""
    return path.replace(b"\\012", b"\n")
