# SPDX-License-Identifier: MIT
"""Temporary files, beside the place where they are to appear.

    .ftpatch.0123456789abcdef

Their creator holds a lock on them (flock(2)), which ends with the process however that ends, on
whatever machine and in whatever namespace it runs; a process id would not tell. So the next command
that writes to the directory can identify what a killed one left, and removes it. The same goes for
directories, and for copies that are run: those are claimed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ftpatch.errors import OutputError
from ftpatch.io.cleanup import CLEANUP

__all__ = [
    "FOLDERS",
    "as_created",
    "claim",
    "lock",
    "named",
    "require_place",
    "run_folder",
    "spare",
    "sweep",
]

SETTLED = 60.0
"""Seconds after which anything that gets claimed has been."""
NAME = re.compile(r"\.ftpatch\.[0-9a-f]{16}")
FOLDERS = re.compile(r"ftpatch\.[a-z0-9_]{8}")
"""Directories for what a command runs and records, as named by tempfile."""
_swept: set[tuple[str, str]] = set()
"""Directories this process has already checked: each directory of a tree has many files."""


def spare(folder: Path) -> Path:
    """Return an unused name."""
    return folder / f".ftpatch.{secrets.token_hex(8)}"


def lock(fd: int) -> None:
    """Mark a file as owned; if locks are not supported, nobody considers it abandoned."""
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def named(folder: Path) -> tuple[Path, int]:
    """Create a file that only its owner can access, registered with CLEANUP; return its name and
    descriptor. Raises OSError."""
    while True:
        with CLEANUP:
            path = spare(folder)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(path, flags, 0o600)
            CLEANUP.name = path
        lock(fd)
        if os.fstat(fd).st_nlink:  # otherwise someone swept it before it was locked
            return path, fd
        os.close(fd)


def require_place(path: Path) -> None:
    """Raise OutputError where no file of this name could be created: one is, and removed."""
    try:
        name, fd = named(path.parent)
        os.close(fd)
        with CLEANUP:
            name.unlink()
            CLEANUP.name = None
        with contextlib.suppress(FileNotFoundError):
            path.lstat()  # an error for a name that is too long
    except OSError as error:
        raise OutputError(path, f"cannot write: {error.strerror}") from None


def as_created(fd: int) -> None:
    """Give a file the default permissions of new files."""
    mask = os.umask(0)
    os.umask(mask)
    os.fchmod(fd, 0o666 & ~mask)


def claim(path: Path) -> None:
    """Mark a file or directory as owned for the lifetime of this process."""
    with contextlib.suppress(OSError):
        lock(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK))


@contextlib.contextmanager
def run_folder() -> Iterator[Path]:
    """A directory for what a command runs and records, removed at the end, by signals as well; what
    killed commands left is removed first. Raises OutputError."""
    try:
        sweep(Path(tempfile.gettempdir()), FOLDERS)
        made = tempfile.TemporaryDirectory(prefix="ftpatch.")
    except OSError as error:
        raise OutputError(error.filename, f"cannot write: {error.strerror}") from None
    with made as name:
        folder = Path(name)
        claim(folder)
        CLEANUP.passing.append(folder)
        try:
            yield folder
        finally:
            CLEANUP.passing.remove(folder)


def sweep(folder: Path, names: re.Pattern[str] = NAME) -> None:
    """Remove what dead commands left in a directory, once per process; with other ``names``, what
    has had time to be claimed, and directories with their contents."""
    if (str(folder), names.pattern) in _swept:
        return
    _swept.add((str(folder), names.pattern))
    try:
        with os.scandir(folder) as entries:
            found = [entry.path for entry in entries if names.fullmatch(entry.name)]
    except OSError:
        return  # whoever writes there will report it
    for path in found:
        with contextlib.suppress(OSError):
            _sweep(path, claimed=names is not NAME)


def _sweep(path: str, *, claimed: bool) -> None:
    mode = os.O_RDONLY if claimed else os.O_RDWR  # over NFS, locking requires write access
    fd = os.open(path, mode | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        held = os.fstat(fd)
        kinds = (stat.S_IFREG, stat.S_IFDIR) if claimed else (stat.S_IFREG,)
        if stat.S_IFMT(held.st_mode) not in kinds or held.st_uid != os.geteuid():
            return
        if claimed and time.time() - max(held.st_mtime, held.st_ctime) < SETTLED:
            return
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.lstat(path).st_ino != held.st_ino:
            return  # replaced meanwhile
        if stat.S_ISDIR(held.st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)  # noqa: PTH108 - a string, as scandir gives it
    finally:
        os.close(fd)
