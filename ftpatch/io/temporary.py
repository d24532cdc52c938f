# SPDX-License-Identifier: MIT
"""Files on their way to a name, beside the place where they are to appear.

    .ftpatch.0123456789abcdef

Who makes one holds a lock on it (flock(2)), which ends with the process however that ends, on
whatever machine and in whatever namespace it runs; a process id would say nothing of those. So the
next command that writes into the folder knows what a kill left there, and takes it away. It is the
same with folders, and with copies that are run: those are claimed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
import time
from pathlib import Path

from ftpatch.io.cleanup import CLEANUP

__all__ = ["FOLDERS", "as_created", "claim", "lock", "named", "spare", "sweep"]

SETTLED = 60.0
"""Seconds after which what is claimed at all has been."""
NAME = re.compile(r"\.ftpatch\.[0-9a-f]{16}")
FOLDERS = re.compile(r"ftpatch\.[a-z0-9_]{8}")
"""Folders for what a command runs and records, as tempfile names them."""
_swept: set[tuple[str, str]] = set()
"""Folders that this process has looked at: of a tree, each has many files."""


def spare(folder: Path) -> Path:
    """A name that nothing has."""
    return folder / f".ftpatch.{secrets.token_hex(8)}"


def lock(fd: int) -> None:
    """Say that a file has an owner; where there are no locks, nobody finds it without one."""
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def named(folder: Path) -> tuple[Path, int]:
    """A new file, for its owner only, that CLEANUP knows of, and its descriptor. Raises
    OSError."""
    while True:
        with CLEANUP:
            path = spare(folder)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(path, flags, 0o600)
            CLEANUP.name = path
        lock(fd)
        if os.fstat(fd).st_nlink:  # or somebody found it before it was locked
            return path, fd
        os.close(fd)


def as_created(fd: int) -> None:
    """Give a file the permissions of any that is created."""
    mask = os.umask(0)
    os.umask(mask)
    os.fchmod(fd, 0o666 & ~mask)


def claim(path: Path) -> None:
    """Say that a file or folder has an owner, for as long as this process lives."""
    with contextlib.suppress(OSError):
        lock(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK))


def sweep(folder: Path, names: re.Pattern[str] = NAME) -> None:
    """Take away what commands that are gone left in a folder, once in each process; of other
    ``names`` what had time to be claimed, and folders with all that is in them."""
    if (str(folder), names.pattern) in _swept:
        return
    _swept.add((str(folder), names.pattern))
    try:
        with os.scandir(folder) as entries:
            found = [entry.path for entry in entries if names.fullmatch(entry.name)]
    except OSError:
        return  # who writes there will say so
    for path in found:
        with contextlib.suppress(OSError):
            _sweep(path, claimed=names is not NAME)


def _sweep(path: str, *, claimed: bool) -> None:
    mode = os.O_RDONLY if claimed else os.O_RDWR  # over NFS, a lock wants a file to be written to
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
            return  # another one by now
        if stat.S_ISDIR(held.st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)  # noqa: PTH108 - a string, as scandir gives it
    finally:
        os.close(fd)
