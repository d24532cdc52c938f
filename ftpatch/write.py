"""The one writer. Always a new file beside the output's place, synced, then renamed over it.

    copy (in a thread, from the start) | verified Changes | appended bytes | sync | rename

The new file has no name until it is whole (O_TMPFILE), so that not even a kill leaves a half of it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
import threading
from pathlib import Path
from types import TracebackType

import numpy as np

from ftpatch.changes import Changes
from ftpatch.errors import InputError, OutputError, UsageError
from ftpatch.journal import pack_block

__all__ = ["Output"]

STEP = 32 << 20
"""Bytes copied, and at most held in memory to be changed, at a time."""
UNSUPPORTED = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EISDIR}
CAPABILITY = "security.capability"


class Output:
    """A copy of ``source`` in the making, to appear at ``target``.

    As a context manager: without ``commit`` nothing appears. ``copied`` and ``size`` (bytes) tell
    how far the copy is.
    """

    def __init__(
        self, source: Path, target: Path, *, force: bool = False, allow_setuid: bool = False
    ) -> None:
        """Check both places and start to copy. With ``target`` equal to ``source`` the file is
        replaced in place.

        Raises UsageError for an output that exists (without ``force``) or is a link, InputError for
        a source that cannot be read, OutputError where no file can be made.
        """
        self.target = target
        self.in_place = target == source
        self._check_target(source, force or self.in_place)
        self.force = force or self.in_place
        try:
            self._source = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise InputError(source, f"cannot read: {error.strerror}") from None
        try:
            self._stat = os.fstat(self._source)
            self._refuse_privileged(source, allow_setuid)
            self._name, self._fd = self._unnamed(target)
        except BaseException:
            os.close(self._source)
            raise
        self.size = self._stat.st_size
        self.copied = 0
        self._failure: OSError | None = None
        self._stop = False
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def __enter__(self) -> Output:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop = True
        self._thread.join()
        os.close(self._source)
        os.close(self._fd)
        if self._name is not None:
            self._name.unlink(missing_ok=True)

    def commit(
        self,
        changes: Changes,
        *,
        journal: bool = True,
        length: int | None = None,
        tail: bytes = b"",
    ) -> None:
        """Write verified Changes and let the file appear. Without Changes it is a plain copy.

        With ``length`` the file ends there (bytes), followed by ``tail``. A journal block comes
        last if anything changes and ``journal`` is wanted. Raises OutputError.
        """
        self._thread.join()
        try:
            if self._failure is not None:
                raise self._failure
            self._apply(changes)
            if length is not None:
                os.ftruncate(self._fd, length)
                self._write(tail, length)
            if journal and len(changes):
                end = os.fstat(self._fd).st_size
                self._write(pack_block(changes, end), end)
            self._own()
            os.fsync(self._fd)
            self._appear()
        except OSError as error:
            raise OutputError(self.target, f"cannot write: {error.strerror}") from None

    def _apply(self, changes: Changes) -> None:
        """Read, change and write back whole stretches: one pass over what is near together."""
        changes = changes.ordered()
        cuts = np.flatnonzero(np.diff(changes.offset // STEP)) + 1
        for rows in np.split(np.arange(len(changes)), cuts):
            if not len(rows):
                continue
            part = changes.take(rows)
            start = int(part.offset[0])
            end = int((part.offset + part.width).max())
            held = np.frombuffer(os.pread(self._fd, end - start, start), np.uint8).copy()
            part.put(held, base=start)
            self._write(held.tobytes(), start)

    def _write(self, data: bytes, offset: int) -> None:
        view = memoryview(data)
        while view:
            done = os.pwrite(self._fd, view, offset)
            view, offset = view[done:], offset + done

    def _copy(self) -> None:
        ways = [self._by_range, self._by_sendfile]
        try:
            while self.copied < self.size and not self._stop:
                try:
                    done = ways[0](min(STEP, self.size - self.copied))
                except OSError as error:
                    if len(ways) == 1 or error.errno not in UNSUPPORTED:
                        raise
                    ways.pop(0)
                    continue
                if done == 0:
                    raise OSError(errno.EIO, "the input became shorter")
                self.copied += done
            if not self._stop:
                # Begins now what the sync at the end would have to wait for.
                os.fdatasync(self._fd)
        except OSError as error:
            self._failure = error

    def _by_range(self, count: int) -> int:
        return os.copy_file_range(self._source, self._fd, count, self.copied, self.copied)

    def _by_sendfile(self, count: int) -> int:
        os.lseek(self._fd, self.copied, os.SEEK_SET)
        return os.sendfile(self._fd, self._source, self.copied, count)

    def _own(self) -> None:
        """Owner and permission bits of the input, but never a privilege."""
        mode = stat.S_IMODE(self._stat.st_mode) & ~(stat.S_ISUID | stat.S_ISGID)
        with contextlib.suppress(PermissionError):  # only root may give files away
            os.fchown(self._fd, self._stat.st_uid, self._stat.st_gid)
        os.fchmod(self._fd, mode)

    def _appear(self) -> None:
        if self._name is None:
            with tempfile.TemporaryDirectory(dir=self.target.parent, prefix=".ftpatch.") as folder:
                named = Path(folder) / self.target.name
                os.link(f"/proc/self/fd/{self._fd}", named, follow_symlinks=True)
                self._rename(named)
        else:
            self._rename(self._name)
            self._name = None
        folder_fd = os.open(self.target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder_fd)
        finally:
            os.close(folder_fd)

    def _rename(self, named: Path) -> None:
        if self.target.is_symlink():
            raise OSError(errno.ELOOP, "the output became a link")
        if self.force:
            named.replace(self.target)
        else:  # fails if it has come to exist meanwhile
            os.link(named, self.target)
            named.unlink()

    def _check_target(self, source: Path, force: bool) -> None:
        if self.target.is_symlink():
            raise UsageError(self.target, "the output is a link", "name the file itself")
        if self.target.is_dir():
            raise UsageError(self.target, "the output is a directory")
        if self.target.exists():
            if not self.in_place and source.exists() and self.target.samefile(source):
                raise UsageError(self.target, "output and input are one file", "use --in-place")
            if not force:
                raise UsageError(self.target, "the output exists", "use --force to overwrite it")
            if not self.target.is_file():
                raise UsageError(self.target, "the output is not a regular file")

    def _refuse_privileged(self, source: Path, allowed: bool) -> None:
        if not stat.S_ISREG(self._stat.st_mode):
            raise InputError(source, "not a regular file", "give one image")
        privileged = bool(self._stat.st_mode & (stat.S_ISUID | stat.S_ISGID))
        with contextlib.suppress(OSError):
            privileged |= CAPABILITY in os.listxattr(self._source)
        if privileged and not allowed:
            raise UsageError(
                source,
                "the file is setuid, setgid or has capabilities, which the output will not have",
                "use --allow-setuid",
            )

    @staticmethod
    def _unnamed(target: Path) -> tuple[Path | None, int]:
        """A file without a name in the output's folder; with one where that cannot be had."""
        flags = os.O_RDWR | os.O_CLOEXEC
        try:
            return None, os.open(target.parent, flags | os.O_TMPFILE, 0o600)
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise OutputError(target, f"cannot write: {error.strerror}") from None
        try:
            fd, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        except OSError as error:
            raise OutputError(target, f"cannot write: {error.strerror}") from None
        return Path(name), fd
