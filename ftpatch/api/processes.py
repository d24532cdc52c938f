# SPDX-License-Identifier: MIT
"""Running processes, as a user of Python meets them."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ftpatch.api.given import AnyPath, path_of, patterns, require_text, whole_number
from ftpatch.api.recording_limits import MAX_STACK, TRACE_SIZE, WILDCARD_LIMIT, require_limits
from ftpatch.api.site_columns import Sites
from ftpatch.arch import arch_of
from ftpatch.errors import FtpatchError, InputError, NoTable, Refused, UsageError
from ftpatch.ftrace.check.findings import Check
from ftpatch.ftrace.filter import Selection, expand, unmatched
from ftpatch.process.code_as_file import check_loaded
from ftpatch.process.loaded import Loaded, loaded_images
from ftpatch.process.process import find_process

if TYPE_CHECKING:
    from ftpatch.api.attaching import Attached, Undone
    from ftpatch.api.observing import Watching

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

    Nothing is stopped or changed until a method is asked to. ``images`` has the program first;
    their code is read when it is asked for. ``errors`` tells what could not be read as an image.
    Raises InputError for what is no process, or may not be read, and UsageError for what is no
    number.
    """

    def __init__(self, pid: int) -> None:
        self.pid = whole_number("pid", pid)
        self._process = find_process(self.pid)
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

    def enable(
        self,
        filter: str | Sequence[str] = (),
        *,
        notrace: str | Sequence[str] = (),
        regex: bool = False,
        lib: str | Sequence[str] = (),
        tracer: str | None = None,
        max_stack: int = MAX_STACK,
        size: int = TRACE_SIZE,
        ring: bool = False,
        off: bool = False,
        args: bool = False,
        output: AnyPath | None = None,
        force: bool = False,
    ) -> Attached:
        """Bring a tracer into the process (default: function_graph) and let the selected sites call
        it, or, where one is there, let more sites call that.

        It records to ``output`` (default: ftpatch.PID.trace in the working directory) until
        ``undo``, also when Python has ended; with ``ring`` that keeps the latest events, with
        ``off`` it has none until ``record``. ``lib`` names libraries, whose sites are selected as
        well. Raises UsageError, InputError, SiteRefused or OutputError; then the process is as
        before.
        """
        from ftpatch.api.attaching import attached, enable_in
        from ftpatch.inject.runtime import Keeping
        from ftpatch.tracer.plan import Tracing

        require_text(tracer=tracer)
        require_limits(max_stack=max_stack, size=size)
        live = enable_in(
            self._process,
            self._loaded(),
            Selection(patterns("filter", filter), patterns("notrace", notrace), regex),
            patterns("lib", lib),
            Tracing(
                tracer=tracer or "function_graph",
                depth=max_stack,
                size=size,
                arguments=bool(args),
                keeping=Keeping(ring=bool(ring), off=bool(off)),
            ),
            None if output is None else path_of("output", output),
            named=tracer is not None or output is not None,
            overwrite=force,
        )
        return attached(live)

    def disable(
        self,
        filter: str | Sequence[str] = (),
        *,
        notrace: str | Sequence[str] = (),
        regex: bool = False,
        lib: str | Sequence[str] = (),
    ) -> Attached:
        """Let the selected sites call the tracer no more, which stays. Raises what ``enable``
        does."""
        from ftpatch.api.attaching import attached, disable_in

        selection = Selection(patterns("filter", filter), patterns("notrace", notrace), regex)
        return attached(disable_in(self._process, self._loaded(), selection, patterns("lib", lib)))

    def record(self, on: bool) -> None:
        """Switch the recording of the process on or off, whatever made it record; its sites and
        probes stay as they are. Raises UsageError for a process that records nothing,
        InputError."""
        from ftpatch.process.recording import record

        record(self._process, on=bool(on))

    def probe(
        self,
        probes: str | Sequence[str],
        *,
        regex: bool = False,
        limit: int = WILDCARD_LIMIT,
        optimize: bool = True,
        keep_going: bool = False,
        max_stack: int = MAX_STACK,
        size: int = TRACE_SIZE,
        ring: bool = False,
        off: bool = False,
        output: AnyPath | None = None,
        force: bool = False,
    ) -> Attached:
        """Insert probes, such as ``"p libc.so.6:malloc n=$arg1:u64"``, which record to ``output``
        as a tracer does, until ``undo``; without ``optimize`` by traps alone. A FUNC may be a
        wildcard for at most ``limit`` functions (0: any number), with ``regex`` a regular
        expression; ``skipped`` has the errors of functions that it matched. Raises UsageError where
        one cannot be inserted, with a note for each further one; with ``keep_going`` the others are
        inserted, and those errors are in ``refused``. InputError, OutputError."""
        from ftpatch.api.attaching import attached, kept, probe_in, probe_targets, require_free

        require_limits(max_stack=max_stack, size=size, limit=limit)
        require_free(self._process)
        refused, loaded = Refused(), self._loaded()
        words = patterns("probes", probes)
        try:
            targets = probe_targets(
                loaded,
                words,
                refused,
                optimize=optimize,
                keep_going=keep_going,
                regex=regex,
                limit=limit,
            )
        except UsageError as last:
            first, *others = [*refused.errors, last]
            for other in others:
                first.add_note(str(other))
            raise first from None
        limits: dict[str, int] = {"depth": max_stack, "size": size}
        bring = probe_in(self._process, loaded, targets, **limits, ring=bool(ring), off=bool(off))
        trace = None if output is None else path_of("output", output)
        live = kept(self._process, loaded[0].path, trace, bring, overwrite=force)
        return attached(live, refused)

    def watch(
        self,
        watches: str | Sequence[str],
        *,
        size: int = TRACE_SIZE,
        output: AnyPath | None = None,
        force: bool = False,
    ) -> Watching:
        """Watch variables, such as ``"stock:rw-"`` or ``"libfoo.so:counter:-w-"``, until ``stop``
        of what is returned, or the end of the ``with`` block that has it. The process is neither
        stopped nor changed. Accesses are recorded to ``output``, as a tracer's calls. Raises
        UsageError, InputError where the kernel refuses, and OutputError."""
        from ftpatch.api.observing import Watching

        require_limits(size=size)
        name = f"ftpatch.{self.pid}.trace" if output is None else output
        return Watching(
            self._process,
            self._loaded(),
            patterns("watches", watches),
            path_of("output", name).absolute(),
            size=size,
            overwrite=force,
        )

    def undo(self) -> Undone:
        """Take a tracer or probes out of the process, and of children that it has forked since.
        What was recorded is complete then. Raises UsageError if there is nothing, InputError."""
        from ftpatch.api.attaching import undo_in, undone

        return undone(undo_in(self._process))

    def _loaded(self) -> list[Loaded]:
        """Its images as they are now. Raises InputError if the program cannot be read."""
        found, errors = loaded_images(self._process)
        self.errors += errors
        if not found:
            raise InputError(None, f"{self._process}: no image of it can be read")
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
