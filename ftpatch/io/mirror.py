# SPDX-License-Identifier: MIT
"""Mirroring a tree: files that a command leaves unchanged are copied beside those it writes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ftpatch.errors import OutputError, UsageError
from ftpatch.io.attributes import give_attributes
from ftpatch.io.output import Copy

__all__ = ["Mirror"]


@dataclass(frozen=True)
class Mirror:
    """Copies the tree ``source`` to the directory ``output``."""

    source: Path
    output: Path

    def check(self, *, force: bool) -> None:
        """Raise UsageError for a directory that is not empty, without ``force``, or that overlaps
        with the tree."""
        output = self.output
        if output.is_symlink() or (output.exists() and not output.is_dir()):
            raise UsageError(output, "the output of a tree must be a directory")
        ours, theirs = output.resolve(), self.source.resolve()
        if ours == theirs or theirs in ours.parents or ours in theirs.parents:
            raise UsageError(output, "output and tree overlap", "use a directory outside of it")
        if output.is_dir() and any(output.iterdir()) and not force:
            raise UsageError(
                output, "the output is not empty", "use --force to overwrite files in it"
            )

    def of(self, path: Path) -> Path:
        """Map a path of the tree to its place in the output. Raises OutputError if a link leads
        elsewhere."""
        target = self.output / path.relative_to(self.source)
        if target != self.output:
            way = self.output.resolve() / path.relative_to(self.source).parent
            if target.parent.resolve() != way:
                raise OutputError(target.parent, "a symbolic link is in the way of a directory")
        return target

    def folder(self, path: Path) -> None:
        """Create a directory with owner, mode and attributes; it is always writable by its owner.
        Raises OutputError."""
        target = self.of(path)
        if target.is_symlink():
            raise OutputError(target, "a symbolic link is in the way of a directory", "remove it")
        if target.is_dir():
            return
        try:
            target.mkdir(0o700, parents=True)
            with _opened(path) as source, _opened(target) as made:
                give_attributes(source, made)
        except OSError as error:
            raise OutputError(target, f"cannot create: {error.strerror}") from None

    def file(self, path: Path) -> None:
        """Copy a file atomically, with everything Copy keeps and its times, or a link as it is.
        Nothing is synced: it can be copied again from the tree. Raises OutputError."""
        target = self.of(path)
        if target.is_dir() and not target.is_symlink():
            raise OutputError(target, "a directory is in the way of a file", "remove it")
        try:
            if path.is_symlink():
                if target.is_symlink():
                    target.unlink()
                target.symlink_to(path.readlink())
            else:
                held = path.stat()
                with Copy(path, target, force=True, allow_setuid=True, sync=False) as copy:
                    copy.finish()
                    copy.appear()
                os.utime(target, ns=(held.st_atime_ns, held.st_mtime_ns))
        except OSError as error:
            raise OutputError(path, f"cannot copy: {error.strerror}") from None


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
