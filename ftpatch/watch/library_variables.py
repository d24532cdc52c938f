# SPDX-License-Identifier: MIT
"""The variables of a program and of the libraries that it loads, by names as in requests."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ftpatch.elf.headers import Segment
from ftpatch.errors import FtpatchError, UsageError
from ftpatch.image import Image, open_image
from ftpatch.image.needed import Needed, loaded_by
from ftpatch.names.suggest import meant, near
from ftpatch.watch import Request, Watch
from ftpatch.watch.homes import LINK, home_of, rank_of, ranked
from ftpatch.watch.variables import Variables

__all__ = ["LibraryVariables"]


@dataclass(frozen=True)
class _Owner:
    """An image with variables, by a ``name`` that requests may have."""

    name: str
    image: Image
    variables: Variables


class LibraryVariables:
    """Finds the variables of a program's file, and of its libraries: as the dynamic linker finds
    them now. A watch of a library has the link address in that, with a number that tells libraries
    apart, which those of the watches ``before`` keep."""

    def __init__(self, program: Image, before: Sequence[Watch] = ()) -> None:
        self._program = _Owner("", program, Variables(program))
        self._owners = {"": self._program}
        self._ranks = {"": 0} | {one.library: rank_of(one.address) for one in before}
        self._places: dict[str, Request] = {}

    def asked(self, request: Request) -> Request:
        """A request with its symbol and its library as they are spelled. Raises UsageError."""
        owner = self._owner(request.library)
        spelled = replace(owner.variables.asked(request), library=owner.name)
        self._places[spelled.place] = spelled
        return spelled

    def resolve(self, place: str) -> tuple[int, int]:
        """Address and size (bytes, 0: unknown) of what was ``asked`` for. Raises UsageError for
        what is no variable."""
        one = self._places[place]
        address, size = self._owner(one.library).variables.resolve(one.symbol)
        return ranked(address, self._rank(one.library)), size

    def variables(self, watch: Watch) -> Variables:
        """The variables of a watch's library."""
        return self._owner(watch.library).variables

    def at_home(self, watch: Watch) -> Watch:
        """A watch with its home. Raises UsageError for a library that could not be recognised."""
        if not watch.library or watch.home is not None:
            return watch
        start = (watch.address & LINK) - watch.offset
        return replace(watch, home=home_of(self._owner(watch.library).image, start))

    def path(self, watch: Watch) -> Path:
        """The file of a watch's library."""
        return self._owner(watch.library).image.path

    def size(self, watch: Watch) -> int:
        """Size of a watch's symbol in bytes, 0: unknown, also of a library that is gone."""
        with suppress(FtpatchError):
            return self.variables(watch).size(replace(watch, address=watch.address & LINK))
        return 0

    def _rank(self, library: str) -> int:
        if library not in self._ranks:
            self._ranks[library] = max(self._ranks.values()) + 1
        return self._ranks[library]

    def _owner(self, library: str) -> _Owner:
        """Raises UsageError for a library that the program does not load."""
        if library not in self._owners:
            one = self._found(library)
            name = Path(one.name).name
            name = name if "." in name else str(one.path)
            known = self._owners.get(name)
            if known is None:
                image = open_image(one.path)
                known = _Owner(name, image, Variables(image))
            self._owners[library] = self._owners[name] = known
        return self._owners[library]

    def _found(self, library: str) -> Needed:
        path = self._program.image.path
        if self._program.image.elf.segment(Segment.PT_INTERP) is None:
            reason = f"{library}: statically linked: it loads no library"
            raise UsageError(path, reason, "remove the library's name")
        real = os.path.realpath(library) if "/" in library else ""
        for one in self._needed:
            if library in one.names or real == os.path.realpath(one.path):
                return one
        names = [one.name for one in self._needed]
        loads = f"it loads {', '.join(names) or 'none'}"
        hint = meant(near(library, names), f"{loads}; `watch --pid` watches those opened later")
        raise UsageError(path, f"it loads no library {library!r} when it starts", hint)

    @cached_property
    def _needed(self) -> list[Needed]:
        return loaded_by(self._program.image)
