# SPDX-License-Identifier: MIT
"""The copy that becomes the output: started at once, in a thread, while everything else loads.

Only the standard library is imported here, so that the copy runs while numpy loads. The new
file has no name until it is complete (O_TMPFILE): not even a kill leaves a partial one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from pathlib import Path
from types import TracebackType

from ftpatch.errors import InputError, OutputError, UsageError
from ftpatch.io.attributes import give_attributes
from ftpatch.io.cleanup import CLEANUP
from ftpatch.io.file_id import file_id
from ftpatch.io.temporary import lock, named, spare, sweep

__all__ = ["Copy", "require_new", "require_output", "require_writable"]

STEP = 32 << 20
"""Bytes copied at a time."""
UNSUPPORTED = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EISDIR}
CAPABILITY = "security.capability"


def require_new(target: Path, *, force: bool) -> None:
    """Raise UsageError for an output that is no regular file, or exists without ``force``."""
    if target.is_symlink():
        raise UsageError(target, "the output is a symbolic link", "use its target")
    if target.is_dir():
        raise UsageError(target, "the output is a directory", "name a file in it")
    if not target.exists():
        return
    if not target.is_file():
        raise UsageError(target, "the output is not a regular file")
    if not force:
        raise UsageError(target, "the output exists", "use --force to overwrite it")


def require_output(source: Path, target: Path, *, force: bool, in_place: bool) -> None:
    """Raise UsageError for an output that cannot be: what exists, without ``force`` or
    ``in_place``, the source itself without that, and no regular file."""
    if not in_place and target.is_file() and target.samefile(source):
        require_new(target, force=True)
        raise UsageError(target, "the output is the input", "use --in-place")
    require_new(target, force=force or in_place)


def require_writable(target: Path) -> None:
    """Raise OutputError if no file can be created in the folder of a target, as far as can be told
    without trying."""
    try:
        os.close(os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        if not os.access(target.parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise OutputError(target, f"cannot write: {error.strerror}") from None


class Copy:
    """A copy of ``source`` in progress, to appear at ``target``; without a target, the source is
    only checked.

    As a context manager: unless ``appear`` is called, nothing remains. ``copied`` and ``size``
    (bytes) are its progress, ``fd`` is the new file; ``names`` is the link count of the file it
    replaced.
    """

    def __init__(
        self,
        source: Path,
        target: Path | None,
        *,
        force: bool,
        allow_setuid: bool,
        in_place: bool = False,
        sync: bool = True,
    ) -> None:
        """Check both places and start copying. With ``in_place`` the target is the source. Without
        ``sync`` nothing is synced.

        Raises UsageError for an output that exists (without ``force``) or is a link, InputError for
        a source that cannot be read, OutputError if no file can be created.
        """
        self.target = target
        self.in_place = in_place
        self.force = force or in_place
        self._sync = sync
        self._path = source
        self.copied = self.size = self.names = 0
        self.fd = -1
        self._name: Path | None = None
        self._failure: OSError | None = None
        self._stop = False
        self._thread: threading.Thread | None = None
        try:
            self._source = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise InputError(source, f"cannot read: {error.strerror}") from None
        try:
            self._stat = os.fstat(self._source)
            self._check_source(source, allow_setuid)
            if target is None:
                return
            require_output(source, target, force=self.force, in_place=in_place)
            sweep(target.parent)
            self._name, self.fd = self._unnamed(target)
        except BaseException:
            os.close(self._source)
            raise
        self.size = self._stat.st_size
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Copy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop = True
        if self._thread is not None:
            self._thread.join()
        os.close(self._source)
        if self.fd >= 0:
            os.close(self.fd)
        if self._name is not None:
            self._name.unlink(missing_ok=True)
            CLEANUP.name = None

    def check_unchanged(self) -> None:
        """Raise InputError if the source is not what it was when the copy began: other file, other
        size, or written to. What was read of it may differ from what was copied."""
        try:
            now = self._path.stat()
        except OSError as error:
            raise InputError(self._path, f"cannot read: {error.strerror}") from None
        if file_id(now) != file_id(self._stat):
            raise InputError(self._path, "the file changed while it was being read", "try again")

    def running(self) -> bool:
        """Return whether there is still something to copy."""
        return self._thread is not None and self._thread.is_alive()

    def finish(self) -> None:
        """Wait for the copy. Raises OSError if it failed."""
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def appear(self) -> None:
        """Sync the file, give it the source's owner, mode and attributes, and its name. Raises
        OSError, and InputError if the source has changed."""
        if self.target is None:
            return
        give_attributes(self._source, self.fd)
        if self._sync:
            os.fsync(self.fd)
        with CLEANUP:  # no signal may intervene between the two
            self._give_name()
            self._name = CLEANUP.name = None
            CLEANUP.appeared = True
        if not self._sync:
            return
        # The file is there; that its name survives a power failure cannot always be guaranteed.
        with contextlib.suppress(OSError):
            folder_fd = os.open(self.target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder_fd)
            finally:
                os.close(folder_fd)

    def _give_name(self) -> None:
        assert self.target is not None
        self.check_unchanged()
        if self._name is None and not self.force:  # fails if the target exists by now
            self._link(self.target)
            return
        if self._name is None:  # linking cannot replace a file, renaming can
            self._name = CLEANUP.name = spare(self.target.parent)
            self._link(self._name)
        self._rename(self._name, self.target)

    def _link(self, name: Path) -> None:
        """Name the unnamed file, as open(2) describes for O_TMPFILE. Python follows the link only
        if given a directory to start from."""
        folder = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.link(str(self.fd), name, src_dir_fd=folder, follow_symlinks=True)
        finally:
            os.close(folder)

    def _rename(self, named: Path, target: Path) -> None:
        if target.is_symlink():
            raise OSError(errno.ELOOP, "the output became a symbolic link")
        if self.force:
            with contextlib.suppress(OSError):
                self.names = target.lstat().st_nlink
            named.replace(target)
        else:
            os.link(named, target)
            named.unlink()

    def _run(self) -> None:
        ways = [self._by_range, self._by_sendfile]
        try:
            while self.copied < self.size and not self._stop:
                self.copied, end = self._extent(self.copied)
                if self.copied == end:
                    break
                try:
                    done = ways[0](min(STEP, end - self.copied))
                except OSError as error:
                    if len(ways) == 1 or error.errno not in UNSUPPORTED:
                        raise
                    ways.pop(0)
                    continue
                if done == 0:
                    raise OSError(errno.EIO, "the input was truncated")
                self.copied += done
            if not self._stop:  # with a hole at the end, if there is one
                os.ftruncate(self.fd, self.size)
            if not self._stop and self._sync:  # now, or the one at the end would take long
                os.fdatasync(self.fd)
        except OSError as error:
            self._failure = error

    def _extent(self, at: int) -> tuple[int, int]:
        """Find the next data at or after ``at``, as start and end offsets; twice the size if there
        is none. Holes stay holes: they take no disk space."""
        try:
            start = min(os.lseek(self._source, at, os.SEEK_DATA), self.size)
            return start, min(os.lseek(self._source, start, os.SEEK_HOLE), self.size)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return self.size, self.size
            return at, self.size  # not supported by this file system

    def _by_range(self, count: int) -> int:
        return os.copy_file_range(self._source, self.fd, count, self.copied, self.copied)

    def _by_sendfile(self, count: int) -> int:
        os.lseek(self.fd, self.copied, os.SEEK_SET)
        return os.sendfile(self.fd, self._source, self.copied, count)

    def _check_source(self, source: Path, allow_setuid: bool) -> None:
        if stat.S_ISDIR(self._stat.st_mode):
            raise InputError(source, "a folder", "name a file in it")
        if not stat.S_ISREG(self._stat.st_mode):
            raise InputError(source, "not a regular file", "use a single image")
        privileged = bool(self._stat.st_mode & (stat.S_ISUID | stat.S_ISGID))
        with contextlib.suppress(OSError):
            privileged |= CAPABILITY in os.listxattr(self._source)
        if privileged and not allow_setuid:
            raise UsageError(
                source,
                "the file is setuid or setgid or has capabilities, which the output will not have",
                "use --allow-setuid",
            )

    @staticmethod
    def _unnamed(target: Path) -> tuple[Path | None, int]:
        """Create an unnamed file in the output's directory, or a named one if that is not
        possible."""
        try:
            fd = os.open(target.parent, os.O_RDWR | os.O_CLOEXEC | os.O_TMPFILE, 0o600)
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise OutputError(target, f"cannot write: {error.strerror}") from None
        else:
            lock(fd)
            return None, fd
        try:
            return named(target.parent)
        except OSError as error:
            raise OutputError(target, f"cannot write: {error.strerror}") from None
