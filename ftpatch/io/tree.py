# SPDX-License-Identifier: MIT
"""Trees of kernel modules: finding the files, and processing them in parallel."""

from __future__ import annotations

import os
import re
import signal
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Generic, Protocol, TypeVar

from ftpatch.errors import FtpatchError, InputError
from ftpatch.io.cleanup import CLEANUP, ENDING

__all__ = [
    "MODULE",
    "Watching",
    "each",
    "entries",
    "is_module",
    "module_paths",
    "no_modules",
    "unwatched",
]

MODULE = re.compile(r".+\.ko(\.(gz|xz|zst))?", re.DOTALL)
"""Module file names, as in kmod."""
BATCH = 16
"""Files per task of a worker."""
PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that ends a worker when its parent dies."""

Result = TypeVar("Result")
One = TypeVar("One")


class Watching(Protocol):
    """Pass results on as they come, of how many and of what."""

    def __call__(self, results: Iterable[One], number: int, what: str, /) -> Iterator[One]: ...


def unwatched(results: Iterable[One], number: int, what: str, /) -> Iterator[One]:
    """Pass them on."""
    return iter(results)


def entries(root: Path) -> Iterator[tuple[Path, os.stat_result | FtpatchError]]:
    """Walk a directory in order of names, with lstat results; a directory precedes its contents.
    Links are not followed. What cannot be read is yielded as its error."""
    pending = [root]
    while pending:
        folder = pending.pop()
        try:
            found = sorted(os.scandir(folder), key=lambda entry: entry.name, reverse=True)
        except OSError as error:
            yield folder, InputError(folder, f"cannot read: {error.strerror}")
            continue
        folders = []
        for entry in reversed(found):
            path = folder / entry.name
            try:
                held = entry.stat(follow_symlinks=False)
            except OSError as error:
                yield path, InputError(path, f"cannot read: {error.strerror}")
                continue
            yield path, held
            if stat.S_ISDIR(held.st_mode):
                folders.append(path)
        pending += reversed(folders)


def is_module(path: Path, held: os.stat_result) -> bool:
    """Return whether it is a regular file named like a module. (A link's target, if in the tree, is
    found under its own name.)"""
    return stat.S_ISREG(held.st_mode) and bool(MODULE.fullmatch(path.name))


def module_paths(root: Path) -> tuple[list[Path], list[FtpatchError]]:
    """Find the modules below a directory; also return errors of what could not be read."""
    paths, errors = [], []
    for path, held in entries(root):
        if isinstance(held, FtpatchError):
            errors.append(held)
        elif is_module(path, held):
            paths.append(path)
    return paths, errors


def no_modules(root: Path) -> InputError:
    """The error for a tree without modules."""
    return InputError(
        root,
        "no modules in this directory",
        "ftpatch looks for *.ko, *.ko.gz, *.ko.xz and *.ko.zst",
    )


def each(
    work: Callable[[Path], Result], paths: Sequence[Path]
) -> Iterator[tuple[Path, Result | FtpatchError]]:
    """Apply ``work`` to every path, on all processors, yielding results in order. An FtpatchError
    is its result."""
    guarded = _Guarded(work)
    workers = min(len(os.sched_getaffinity(0)), -(-len(paths) // BATCH))
    CLEANUP.one_of_many = True
    try:
        if workers <= 1:
            yield from zip(paths, map(guarded, paths), strict=True)
        else:
            yield from _shared(guarded, paths, workers)
    finally:
        CLEANUP.one_of_many = False


def _shared(
    guarded: _Guarded[Result], paths: Sequence[Path], workers: int
) -> Iterator[tuple[Path, Result | FtpatchError]]:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    # A forked worker has all libraries loaded already.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, context, _begin, (os.getpid(),)) as pool:
        # The pool's threads, which start here, learn of a dead worker by an error, not a signal;
        # and workers get no signals before they can clean up.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            results = pool.map(guarded, paths, chunksize=BATCH)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for path in paths:
            try:
                yield path, next(results)
            except BrokenProcessPool:
                left = len(paths) - paths.index(path)
                raise InputError(
                    path,
                    f"a worker process died; {left} modules from this one on may be incomplete",
                    "use a part of the tree",
                ) from None


class _Guarded(Generic[Result]):
    """Return ``work``'s FtpatchErrors as results, so that one file does not hide the others."""

    def __init__(self, work: Callable[[Path], Result]) -> None:
        self.work = work

    def __call__(self, path: Path) -> Result | FtpatchError:
        try:
            return self.work(path)
        except FtpatchError as error:
            return error
        except MemoryError:
            return InputError(path, "out of memory")


def _begin(parent: int) -> None:
    """Let a worker end with its parent, and leave reporting that to the parent."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN or number == signal.SIGTERM:
            signal.signal(number, _ended)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGTERM)


def _ended(number: int, frame: FrameType | None) -> None:
    if CLEANUP.postpones(number, _ended):
        return
    CLEANUP.ending = True
    CLEANUP.discard()
    os._exit(128 + number)
