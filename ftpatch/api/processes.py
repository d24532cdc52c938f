# SPDX-License-Identifier: MIT
"""Running processes, as a user of Python meets them."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from ftpatch.api.given import patterns
from ftpatch.api.site_columns import Sites
from ftpatch.arch import arch_of
from ftpatch.errors import FtpatchError, InputError, NoTable, UsageError
from ftpatch.ftrace.check.findings import Check
from ftpatch.ftrace.filter import Selection, expand, unmatched
from ftpatch.process.code_as_file import check_loaded
from ftpatch.process.loaded import Loaded, loaded_images
from ftpatch.process.process import find_process

__all__ = ["LoadedImage", "Process"]


class LoadedImage:
    """The program of a process, or a library that it has loaded.

    ``path`` as the process knows it, ``container`` and ``arch`` as of an Image; ``address``: where
    it was loaded; ``deleted``: the file has no name any more, or another one has it.
    """

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self.path: Path = loaded.path
        self.container: str = loaded.file.container.name
        skeleton = loaded.file.elf.skeleton
        arch = arch_of(skeleton.machine, skeleton.elf_class)
        self.arch: str = arch.name if arch else ""
        self.address: int = loaded.address
        self.deleted: bool = loaded.deleted

    def __repr__(self) -> str:
        return f"<{self.arch} {self.container} {self.path} at {self.address:#x}>"

    @cached_property
    def sites(self) -> Sites:
        """Its sites as they stand in memory; none where it has no table. Raises InputError."""
        return Sites(self._loaded.sites, loaded=self._loaded)

    def check(self) -> Check:
        """Check its sites, and compare all of its code with its file. Raises InputError."""
        return check_loaded(self._loaded)

    def matches(self, lib: str) -> bool:
        """Test whether a glob matches its path, its file's name, or its SONAME."""
        return any(map(re.compile(fnmatch.translate(lib)).fullmatch, self._loaded.names))


class Process:
    """A running process, with the images that it had loaded when this was made.

    Nothing is stopped or changed. ``images`` has the program first; their code is read when it is
    asked for. ``errors`` tells what could not be read as an image. Raises InputError for what is no
    process, or may not be read.
    """

    def __init__(self, pid: int) -> None:
        self._process = find_process(pid)
        self.pid = pid
        self.name: str = self._process.name
        found, errors = loaded_images(self._process)
        self.images: tuple[LoadedImage, ...] = tuple(map(LoadedImage, found))
        self.errors: list[FtpatchError] = errors

    def __repr__(self) -> str:
        return f"<process {self._process}>"

    def select(
        self,
        filter: str | Sequence[str] = (),
        *,
        notrace: str | Sequence[str] = (),
        regex: bool = False,
        lib: str | Sequence[str] = (),
    ) -> list[tuple[LoadedImage, Sites]]:
        """The sites that ``-f``, ``-n`` and ``--lib`` select, image by image. Raises NoTable where
        there are no sites, UsageError for a pattern that matches nothing."""
        images = [one for one in self._chosen(patterns("lib", lib)) if self._has_sites(one)]
        if not images:
            raise NoTable(
                str(self._process),
                "none of these images has call sites" if lib else "no image has call sites",
                "`ftpatch status --pid` lists what it has loaded",
            )
        selection = expand(
            Selection(patterns("filter", filter), patterns("notrace", notrace), regex)
        )
        missing: set[str] | None = None
        found = []
        for image in images:
            unseen = set[str]()
            mask = image._loaded.select(selection, unseen)
            missing = unseen if missing is None else missing & unseen
            if mask.any():
                found.append((image, image.sites[mask]))
        if missing:
            reads = [image._loaded.sites for image in images]
            error = unmatched(min(missing), reads, regex=regex)
            raise UsageError(str(self._process), error.reason, error.hint)
        if not found:
            raise UsageError(
                str(self._process), "the filters select no site", "see `ftpatch list --pid`"
            )
        return found

    def _has_sites(self, image: LoadedImage) -> bool:
        try:
            return len(image.sites) > 0
        except InputError as error:
            self.errors.append(error)
            return False

    def _chosen(self, globs: Sequence[str]) -> list[LoadedImage]:
        for glob in globs:
            if not any(image.matches(glob) for image in self.images):
                reason = f"no image matches --lib {glob!r}"
                hint = "`ftpatch status -v --pid` lists what it has loaded"
                raise UsageError(str(self._process), reason, hint)
        if not globs:
            return list(self.images)
        return [image for image in self.images if any(map(image.matches, globs))]
