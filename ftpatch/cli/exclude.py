# SPDX-License-Identifier: MIT
"""``--exclude``: images of a directory to leave out.

--exclude 'drivers/gpu/*'   by the path below the directory; * matches / too
--exclude '*-test.ko'       by the name, in whatever folder
--exclude staging           a folder, with everything below it
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ftpatch.errors import FtpatchError, NoImages, UsageError
from ftpatch.names.suggest import meant, near

__all__ = ["Exclude", "Folders", "images_below"]

Exclude = Annotated[
    list[str],
    typer.Option(
        "--exclude",
        metavar="GLOB",
        help="Files and folders to leave out of directories, by name or by path below the "
        "directory: * ? [] match. Repeatable.",
    ),
]
Folders = dict[Path, tuple[list[Path], list[FtpatchError]]]
"""Each directory with its images, and with errors of what could not be read."""


def images_below(paths: Sequence[Path], exclude: Sequence[str]) -> Folders:
    """Find the images of those paths that are directories, less what is excluded. A directory
    without any has an error that says so. Raises UsageError for a glob that matches nothing."""
    from ftpatch.image.folder import image_paths, no_images

    roots = [path for path in paths if path.is_dir()]
    if exclude and not roots and all(map(os.path.lexists, paths)):
        reason = "not a directory, and --exclude leaves out files of directories"
        raise UsageError(paths[0], reason, "remove --exclude, or give the directory instead")
    globs = _Globs(exclude)
    found: Folders = {}
    for root in roots:
        images, errors = image_paths(root)
        left = [path for path in images if not globs.match(path.relative_to(root))]
        unread = [e for e in errors if not globs.match(Path(e.path or root).relative_to(root))]
        if not left and not unread:
            reason = "--exclude leaves no image of this directory"
            unread = [NoImages(root, reason) if images or errors else no_images(root)]
        found[root] = left, unread
    if roots:
        globs.require_match(roots)
    return found


class _Globs:
    """The globs of ``--exclude``, and what they were compared with."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._globs = {text: re.compile(fnmatch.translate(_normal(text))) for text in texts}
        self._unmatched = dict.fromkeys(texts)
        self._seen = dict[str, None]()

    def match(self, path: Path) -> bool:
        """Whether one of them matches this path or a folder that it is in."""
        if not self._globs:
            return False
        above = [path, *path.parents][:-1]
        names = [text for part in above for text in (str(part), part.name)]
        self._seen.update(dict.fromkeys(names))
        hit = [text for text, glob in self._globs.items() if any(map(glob.fullmatch, names))]
        for text in hit:
            self._unmatched.pop(text, None)
        return bool(hit)

    def require_match(self, roots: Sequence[Path]) -> None:
        """Raise UsageError for a glob that matched nothing below the roots."""
        where = str(roots[0]) if len(roots) == 1 else "a directory given"
        for text in self._unmatched:
            hint = meant(near(_normal(text), self._seen), f"use a name, or a path below {where}")
            raise UsageError(None, f"--exclude {text!r} matches no image", hint)


def _normal(text: str) -> str:
    """A glob without what says nothing: ``./a/`` is ``a``."""
    return os.path.normpath(text) if text else text
