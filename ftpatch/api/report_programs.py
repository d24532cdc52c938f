# SPDX-License-Identifier: MIT
"""The programs and libraries that traces are of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ftpatch.debuginfo.lines import Lines
from ftpatch.errors import InputError, UsageError
from ftpatch.image import Image, open_image
from ftpatch.trace.mapped import Mapped
from ftpatch.trace.moved import moved_along
from ftpatch.trace.owner import is_library, require_owner
from ftpatch.trace.source import Origin
from ftpatch.trace.symbolize import Program

__all__ = ["Programs"]

Key = tuple[Path, int, tuple[Program, ...]]


class Programs:
    """Opens the images of traces, each once, and checks that they belong together."""

    def __init__(
        self,
        image: Path | None,
        *,
        force: bool = False,
        plain: bool = False,
        source: bool = False,
        option: str = "--image",
        tell: Callable[[str], None],
    ) -> None:
        """``option`` names the image; ``tell`` takes a line for each that cannot be used."""
        self._tell, self._option = tell, option
        self._image, self._force, self._plain, self._source = image, force, plain, source
        self._images: dict[Path, Image | None] = {}
        self._lines: dict[Path, Lines | None] = {}
        self._programs: dict[Key, Program] = {}
        self._libraries: dict[tuple[str, bytes, int], Program] = {}

    def of(self, header: Origin) -> Program:
        """The program of a trace. Raises InputError where the image is another one."""
        path = self._image or Path(header.image)
        image = self._open(path) if self._image or header.image else None
        if image is not None and not self._force:
            require_owner(header, image, self._option)
        libraries = tuple(self._library(mapped, header.image) for mapped in header.libraries)
        key = path, header.base, libraries
        if key not in self._programs:
            table = self._table(path) if self._source and image is not None else None
            pairs = tuple(zip(header.libraries, libraries, strict=True))
            self._programs[key] = Program(image, header.base, self._plain, table, pairs)
        return self._programs[key]

    def _library(self, mapped: Mapped, program: str) -> Program:
        """One that was traced with a program; without an image, where its file is another now."""
        base = (mapped.base - mapped.start) % (1 << 64)
        key = mapped.path, mapped.image_id, base
        if key not in self._libraries:
            path = Path(mapped.path)
            if self._image is not None:
                path = moved_along(path, Path(program), self._image)
            image = self._open(path, library=True) if mapped.path else None
            if image is not None and not self._force and not is_library(mapped, image):
                reason = "not the traced library, or changed since"
                self._tell(f"{path}: {reason}; reporting addresses instead of names")
                image = None
            table = self._table(path) if self._source and image is not None else None
            self._libraries[key] = Program(image, base, self._plain, table, name=mapped.path)
        return self._libraries[key]

    def _open(self, path: Path, *, library: bool = False) -> Image | None:
        if path not in self._images:
            try:
                self._images[path] = open_image(path)
            except (InputError, UsageError, ValueError) as error:
                if self._image is not None and not library:
                    raise
                self._images[path] = None
                hint = "" if library else f"; {self._option} names it where it is now"
                self._tell(f"{error}; reporting addresses instead of names{hint}")
        return self._images[path]

    def _table(self, path: Path) -> Lines | None:
        if path not in self._lines:
            try:
                self._lines[path] = Lines(path)
            except InputError as error:
                self._lines[path] = None
                self._tell(str(error))
        return self._lines[path]
