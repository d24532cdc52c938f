# SPDX-License-Identifier: MIT
"""Shared libraries traced with a program: patched copies, placed where the program finds them
first.

    FOLDER/libz.so.1        for a library needed by name
    FOLDER/0/libz.so        for one needed by path

The copies are found through LD_LIBRARY_PATH. What takes precedence over that, the program's
DT_RPATH, starts with FOLDER in its copy; a library's $ORIGIN still means its original folder.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.elf.dynamic import Tag, dynamic_string, dynamic_values
from ftpatch.errors import InputError, NoTable, SiteRefused, UsageError
from ftpatch.ftrace.plan import Plan
from ftpatch.ftrace.sites import Sites, read_sites
from ftpatch.image import Image, open_image
from ftpatch.image.needed import Needed, Needs, matching
from ftpatch.inject.dynamic_strings import with_origin
from ftpatch.inject.library_tables import Library, fitting, ranges
from ftpatch.inject.runtime import TRACERS
from ftpatch.io.output import Copy
from ftpatch.trace.header import open_trace
from ftpatch.trace.mapped import Mapped
from ftpatch.tracer.choice import Choice
from ftpatch.tracer.foreseen import constructs, may_open
from ftpatch.tracer.library_plan import Place, plan_library
from ftpatch.tracer.plan import Tracing
from ftpatch.tracer.program import Cleared, tell_cleared
from ftpatch.update.update import prepare_sites, update

__all__ = ["Libraries"]

VARIABLE = "LD_LIBRARY_PATH"
PRELOAD = "LD_PRELOAD"
APART = ":;$"
"""Characters that no folder in the former can have in its name; in the latter, blanks as well."""


class Libraries:
    """The libraries of one run. ``may_open``: the program may open others later; ``constructs``:
    some have constructors to be traced."""

    def __init__(
        self, program: Path, globs: Sequence[str], folder: Path, on_cleared: Cleared
    ) -> None:
        """Find them; copies go into ``folder``. Raises UsageError and InputError."""
        if any(c in str(folder) for c in APART):
            raise UsageError(
                folder, "unsuitable directory for libraries", "set TMPDIR to another directory"
            )
        if os.statvfs(folder).f_flag & os.ST_NOEXEC:
            raise UsageError(folder, "mounted noexec", "set TMPDIR to another directory")
        self._folder = folder / "lib"
        self._folder.mkdir()
        self._on_cleared = on_cleared
        self._image = open_image(program)
        self._needs = Needs(self._image)
        needed = self._needs.of(program, os.environ)
        self.may_open = may_open(self._image, needed)
        self._globs = matching(program, needed, globs, more=self.may_open)
        chosen = {one for found in self._globs.values() for one in found}
        self._chosen = [one for one in needed if one in chosen]
        self.constructs = constructs(self._image, self._chosen)
        self._copies: dict[Needed, Path] = {}
        self._traced: dict[bytes, Needed] = {}
        self._left: dict[Needed, str] = {}

    @property
    def unmatched(self) -> list[str]:
        """Globs that match no library that it is linked with."""
        return [glob for glob, found in self._globs.items() if not found]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the run."""
        before = os.environ.get(VARIABLE)
        path = f"{self._folder}:{before}" if before else str(self._folder)
        out = {**os.environ, VARIABLE: path}
        if PRELOAD in out and " " not in path:  # a library's path may be given there
            copies = {one.name: str(copy) for one, copy in self._copies.items() if "/" in one.name}
            words = re.split("([ :])", out[PRELOAD])
            out[PRELOAD] = "".join(copies.get(word, word) for word in words)
        return out

    @property
    def copies(self) -> dict[Path, Path]:
        """The originals by their copies, links resolved."""
        return {Path(os.path.realpath(copy)): one.path for one, copy in self._copies.items()}

    def patch(self, choice: Choice, tracing: Tracing, patched: Path) -> Tracing:
        """Inject stubs into copies of the libraries; return the options for the program, whose copy
        is to appear at ``patched``."""
        told = self._patch(choice, tracing)
        real = Path(os.path.realpath(self._image.path)).parent
        origin = real if patched.parent != real else None
        return replace(told, strings=self._strings(self._image, origin))

    def _patch(self, choice: Choice, tracing: Tracing) -> Tracing:
        """Write the copies; return the options of the program's tracer, with their table."""
        opened = self._opened()
        masks = {one: choice.of(sites) for one, (_, sites) in opened.items()}
        wanted = [one for one in opened if masks[one].any()]
        fits = fitting(_path_of(one) for one in wanted)
        for one, fit in zip(wanted, fits, strict=True):
            if not fit:
                self._left[one] = "too many libraries for one trace"
        wanted = [one for one, fit in zip(wanted, fits, strict=True) if fit]
        for number, one in enumerate(wanted):
            inner = self._folder / str(number) if "/" in one.name else self._folder
            inner.mkdir(exist_ok=True)
            self._copies[one] = inner / Path(one.name).name
        spans = ranges(self._image, [opened[one][0] for one in wanted])
        laid = []
        for one, span in zip(wanted, spans, strict=True):
            image, sites = opened[one]
            place = Place(
                range=span,
                path=_path_of(one),
                strings=self._strings(image, one.path.absolute().parent),
            )
            laid.append(self._one(one, sites, masks[one], place, tracing))
        for one in wanted:
            self._link(one)
        return replace(tracing, libraries=tuple(laid))

    def untraced(self, patched: Path, traces: Iterable[Path]) -> list[tuple[Path, str]]:
        """List the libraries that no trace has recorded, and why. ``patched``: the program's
        copy."""
        there = {library.path for trace in traces for library in _told(trace)}
        for path, one in self._traced.items():
            if os.fsdecode(path) not in there:
                self._left[one] = self._why(patched, one)
        return [(one.path, reason) for one, reason in self._left.items()]

    def _opened(self) -> dict[Needed, tuple[Image, Sites]]:
        """Return the selected libraries that have sites. Raises InputError for a glob without
        any."""
        opened, without = dict[Needed, tuple[Image, Sites]](), dict[Needed, NoTable]()
        for one in self._chosen:
            image = open_image(one.path)
            try:
                opened[one] = image, read_sites(image, named=True)
            except NoTable as error:
                without[one] = error
        for glob, found in self._globs.items():
            if self.may_open or any(one in opened for one in found):
                continue
            first = without[found[0]]
            if len(found) == 1:
                raise first
            reason = f"none of the {len(found)} libraries that match --lib {glob!r} has sites"
            raise NoTable(self._image.path, reason, first.hint)
        return opened

    def _link(self, one: Needed) -> None:
        """Link the copy under the library's other names: one without a soname may be needed by
        any."""
        copy, real = self._copies[one], os.path.realpath(one.path)
        with contextlib.suppress(OSError), os.scandir(one.path.absolute().parent) as entries:
            for other in entries:
                place = copy.with_name(other.name)
                if other.is_symlink() and os.path.realpath(other) == real and not place.exists():
                    place.symlink_to(copy.name)

    def _one(
        self, one: Needed, sites: Sites, mask: NDArray[np.bool_], place: Place, tracing: Tracing
    ) -> Library:
        """Write one copy."""
        made: list[Library] = []

        def plan(found: Sites) -> Plan:
            planned, library = plan_library(
                found,
                mask,
                place,
                arguments=tracing.arguments,
                hooks=TRACERS[tracing.tracer].hooks,
            )
            made.append(library)
            return planned

        target = self._copies[one]
        with Copy(one.path, target, force=False, allow_setuid=False, sync=False) as copy:
            prepared = prepare_sites(sites.image, sites, plan)
            if prepared.refused:
                raise SiteRefused(one.path, prepared.refused[0][1])
            tell_cleared(prepared.image, prepared.plan.changes, self._on_cleared)
            update(copy, prepared)
        self._traced[place.path] = one
        return made[0]

    def _strings(self, image: Image, origin: Path | None) -> dict[int, bytes]:
        """New strings for a copy's dynamic table. ``origin``: what $ORIGIN has to mean, None if it
        means that anyway."""
        paths = {os.fsencode(one.name): place for one, place in self._copies.items()}
        out = {}
        for tag, value, entry in dynamic_values(image.elf):
            if tag not in (Tag.NEEDED, Tag.RPATH, Tag.RUNPATH):
                continue
            old = dynamic_string(image.elf, value)
            new = old
            if tag == Tag.NEEDED:
                if b"/" in old and old in paths:
                    new = bytes(paths[old])
            elif origin is not None:
                new = with_origin(new, bytes(origin))
            if tag == Tag.RPATH:
                new = bytes(self._folder) + b":" + new
            if new != old:
                out[entry] = new
        return out

    def _why(self, patched: Path, one: Needed) -> str:
        """Explain why the copy of a library was not found."""
        try:
            now = self._needs.of(patched, self.environment)
        except InputError:
            return "the program did not load it"
        paths = {found.path for found in now if found.names & one.names}
        if not paths or self._copies[one] in paths:
            return "the program did not load it"
        which = "the original" if one.path in paths else str(min(paths))
        return f"the dynamic linker uses {which}: a DT_RPATH precedes {VARIABLE}"


def _told(trace: Path) -> tuple[Mapped, ...]:
    """The libraries in a trace's header."""
    try:
        fd, header = open_trace(trace)
    except InputError:
        return ()
    os.close(fd)
    return header.libraries


def _path_of(one: Needed) -> bytes:
    """The library's name in traces."""
    return bytes(one.path.absolute())
