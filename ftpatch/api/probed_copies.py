# SPDX-License-Identifier: MIT
"""The copies of libraries that are written with a probed program.

shop.probed
shop.probed.libs/libz.so.1
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ftpatch.errors import OutputError, UsageError
from ftpatch.io.cleanup import CLEANUP
from ftpatch.io.output import Copy, require_new, require_writable
from ftpatch.update.update import lay_in

if TYPE_CHECKING:
    from ftpatch.probe.library_copies import LibraryCopy

__all__ = ["copies_beside", "require_beside", "written_beside"]

SUFFIX = ".libs"


def copies_beside(output: Path) -> Path:
    """The folder of the copies of an output."""
    return output.with_name(output.name + SUFFIX)


@contextmanager
def written_beside(
    output: Path, copies: Sequence[LibraryCopy], *, force: bool
) -> Iterator[tuple[Path, ...]]:
    """Write the copies for an output, which appears behind them; if it does not, those that are new
    go again. Raises UsageError for one that exists, without ``force``, and what writing raises."""
    folder = copies_beside(output)
    places = [folder / one.name for one in copies]
    with ExitStack() as undo:
        if copies:
            CLEANUP.many = True
            undo.enter_context(_made(folder))
        _require_new(places, force=force)
        for one, place in zip(copies, places, strict=True):
            new = not place.exists()
            with Copy(one.image.path, place, force=force, allow_setuid=False) as copy:
                lay_in(copy, one.image, one.plan)
            if new:
                undo.callback(place.unlink, missing_ok=True)
        yield tuple(places)
        undo.pop_all()


def require_beside(output: Path, copies: Sequence[LibraryCopy], *, force: bool) -> None:
    """Raise what ``written_beside`` would raise for the places of the copies of an output."""
    if copies:
        folder = copies_beside(output)
        _require_folder(folder)
        places = [folder / one.name for one in copies]
        _require_new(places, force=force)
        require_writable(places[0] if folder.exists() else folder)


def _require_new(places: Sequence[Path], *, force: bool) -> None:
    for place in places:
        require_new(place, force=force)


def _require_folder(folder: Path) -> None:
    """Raise UsageError for what cannot be a folder of copies, such as a name that the dynamic
    linker would expand."""
    if "$" in str(folder.resolve()):
        raise UsageError(folder, "the dynamic linker would replace `$`", "use another output")
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(folder, "not a directory, and libraries go there", "use another output")


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Make a folder, if it is not there; remove it again at the end, if it is empty. Raises
    UsageError for one that cannot be, OutputError."""
    _require_folder(folder)
    new = not folder.exists()
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise OutputError(folder, f"cannot write: {error.strerror}") from None
    try:
        yield
    finally:
        if new:
            with suppress(OSError):
                folder.rmdir()
