# SPDX-License-Identifier: MIT
"""Images, as a user of Python meets them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from ftpatch.api.given import AnyPath, path_of, patterns, require_text
from ftpatch.api.planner import Disable, Enable, Planner
from ftpatch.api.recording_limits import MAX_STACK, TRACE_SIZE, WILDCARD_LIMIT, require_limits
from ftpatch.api.site_columns import Sites
from ftpatch.api.writing import (
    Writing,
    WritingOptions,
    write_undo,
    write_update,
    writing_of,
)
from ftpatch.arch import arch_of
from ftpatch.errors import Refused, SiteRefused, UsageError
from ftpatch.ftrace.check.check import Check
from ftpatch.ftrace.sites import read_sites
from ftpatch.image import open_image

if TYPE_CHECKING:
    from ftpatch.api.differences import Differences
    from ftpatch.api.probing import Probe, Probed
    from ftpatch.api.traced_boot import Boot
    from ftpatch.api.watching import Watch, Watched
    from ftpatch.probe.kernel_events import Form
    from ftpatch.tracer.plan import Tracing
    from ftpatch.update.update import Outcome

__all__ = ["Image", "open"]


class Image:
    """A kernel, a module, a program or a library, as it was when it was opened.

    ``container`` is vmlinux, bzImage, Image, module, executable, shared-object or object; ``arch``
    the architecture's name, empty for one that is not supported. What writes makes a new file, as
    the commands of these names do, and leaves this image as it is.
    """

    def __init__(self, path: AnyPath) -> None:
        self.path = path_of("path", path)
        self._image = open_image(self.path)
        self.container: str = self._image.container.name
        skeleton = self._image.elf.skeleton
        arch = arch_of(skeleton.machine, skeleton.elf_class)
        self.arch: str = arch.name if arch else ""

    def __repr__(self) -> str:
        return f"<{self.arch} {self.container} {self.path}>"

    @cached_property
    def sites(self) -> Sites:
        """Its sites. Raises NoTable where there are none."""
        return Sites(read_sites(self._image))

    def check(self) -> Check:
        """Check the table and its sites; of a kernel or a module, predict what ftrace_init will
        say. Raises InputError for what cannot be read."""
        from ftpatch.api.checking import check_probed

        return check_probed(self._image)

    def enable(
        self,
        filter: str | Sequence[str] = (),
        *,
        notrace: str | Sequence[str] = (),
        regex: bool = False,
        to: str | None = None,
        tracer: str | None = None,
        max_stack: int = MAX_STACK,
        size: int = TRACE_SIZE,
        ring: bool = False,
        off: bool = False,
        rotate: int = 0,
        args: bool = False,
        libcalls: bool = False,
        site: str | None = None,
        keep_records: bool = False,
        **options: Unpack[WritingOptions],
    ) -> Outcome:
        """Turn the selected sites into calls, and write the image to ``output`` (default: its name
        + ``.ftpatch``).

        The sites call ``to``, or ``tracer`` (a name, or the path of a stub), or the image's own
        ftrace_caller. ``size`` is that of the tracer's file in bytes, which keeps the latest events
        if it is a ``ring``; with ``off`` it has none until recording is switched on
        (``Process.record``); ``rotate`` is how many full files it keeps while it goes on in another
        one; with ``libcalls`` calls of shared libraries are traced as well. Raises SiteRefused,
        whose ``refused`` has each site with the reason, and writes nothing, where one is not what
        it has to be; with ``dry_run`` they are in the outcome. UsageError, InputError, OutputError.
        """
        require_text(to=to, site=site)
        plan = Enable(
            filters=patterns("filter", filter),
            notrace=patterns("notrace", notrace),
            regex=regex,
            site=site,
            keep_records=keep_records,
            to=to,
            tracing=_tracing(
                tracer, max_stack, size, args=args, keeping=(bool(ring), bool(off), rotate)
            ),
            calls=libcalls,
        )
        writing = writing_of(self.path, options)
        return _written(writing, plan)

    def disable(
        self,
        filter: str | Sequence[str] = (),
        *,
        notrace: str | Sequence[str] = (),
        regex: bool = False,
        nop: str | None = None,
        site: str | None = None,
        keep_records: bool = False,
        **options: Unpack[WritingOptions],
    ) -> Outcome:
        """Turn the selected sites into NOPs, of the form ``nop`` (x86: p6, nop5, jmp), and write
        the image as ``enable`` does."""
        require_text(nop=nop, site=site)
        plan = Disable(
            filters=patterns("filter", filter),
            notrace=patterns("notrace", notrace),
            regex=regex,
            site=site,
            keep_records=keep_records,
            nop=nop,
        )
        writing = writing_of(self.path, options)
        return _written(writing, plan)

    def probe(
        self,
        probes: str | Sequence[str],
        *,
        regex: bool = False,
        limit: int = WILDCARD_LIMIT,
        handler: str | None = None,
        optimize: bool = True,
        keep_going: bool = False,
        max_stack: int = MAX_STACK,
        size: int = TRACE_SIZE,
        ring: bool = False,
        off: bool = False,
        sink: str = "",
        **options: Unpack[WritingOptions],
    ) -> Probed:
        """Insert probes, such as ``"p sell n=$arg1:s32"``, and write the program or kernel as
        ``enable`` does.

        In a program, a FUNC may be a wildcard for at most ``limit`` functions (0: any number), with
        ``regex`` a regular expression; ``skipped`` has the errors of functions that it matched.
        ``handler`` is a function of a stub of your own, as STUB:FUNC; ``sink`` the device that a
        kernel's hits go to. Raises UsageError where a probe cannot be inserted, with a note for
        each further one; with ``keep_going`` the others are inserted, and those errors are in
        ``refused``.
        """
        from ftpatch.api.boot_probing import insert_probes
        from ftpatch.api.probing import ProbeWords

        words = ProbeWords(
            probes=patterns("probes", probes),
            handler=handler,
            optimize=optimize,
            keep_going=keep_going,
            max_stack=max_stack,
            size=size,
            regex=regex,
            limit=limit,
            sink=sink,
        )
        writing = writing_of(self.path, options)
        refused = Refused()
        try:
            return insert_probes(writing, words, refused)
        except UsageError as last:
            first, *others = [*refused.errors, last]
            for other in others:
                first.add_note(str(other))
            raise first from None

    def kprobe_events(
        self, probes: str | Sequence[str], *, bootconfig: bool = False
    ) -> tuple[str, ...]:
        """Return probes of a kernel or a module as lines for kprobe_events, or for a
        ``bootconfig``. Raises UsageError where the kernel could not be told one of them, with a
        note for each further one."""
        from ftpatch.api.probing import kernel_lines

        refused = Refused()
        form: Form = "bootconfig" if bootconfig else "kprobe_events"
        lines = kernel_lines(self._image, patterns("probes", probes), form, refused)
        if refused.errors:
            first, *others = refused.errors
            for other in others:
                first.add_note(str(other))
            raise first
        return tuple(lines)

    @property
    def probes(self) -> tuple[Probe, ...]:
        """The probes that the program or kernel has."""
        from ftpatch.api.boot_probing import probes_in

        return probes_in(self._image) or ()

    def watch(
        self,
        watches: str | Sequence[str],
        *,
        size: int | None = None,
        **options: Unpack[WritingOptions],
    ) -> Watched:
        """Watch variables, such as ``"stock:rw-"``, or watch them no longer (``"stock:---"``), and
        write the program as ``enable`` does. Raises UsageError where one of the requests cannot be
        carried out; nothing is written then."""
        from ftpatch.api.watching import write_watches

        writing = writing_of(self.path, options)
        return write_watches(writing, patterns("watches", watches), size=size)

    @property
    def watches(self) -> tuple[Watch, ...]:
        """The watches that the program has."""
        from ftpatch.api.watching import watches_of

        return watches_of(self._image)

    def diff(self, other: AnyPath | None = None) -> Differences:
        """Compare with another image, or with what this one was made from, site by site; without a
        journal, with its name + ``.ftpatch``. Raises UsageError where there is none of these."""
        from ftpatch.api.differences import Differences, sides_of

        return Differences(
            *sides_of(self._image, None if other is None else path_of("other", other))
        )

    def boot(
        self,
        filter: str | Sequence[str] = (),
        *,
        notrace: str | Sequence[str] = (),
        regex: bool = False,
        sink: str = "",
        until: str = "",
        max: int | None = None,
        time: bool = False,
        last: int = 0,
        stop_on_warn: bool = False,
        watch: str | Sequence[str] = (),
        probe: str | Sequence[str] = (),
        append: str | Sequence[str] = (),
        qemu: Sequence[str] = (),
        limit: float = 600,
        idle: float = 60,
        keep: AnyPath | None = None,
    ) -> Boot:
        """Boot a traced copy of the kernel under QEMU, and wait for its end: the call of ``until``,
        ``max`` events, ``limit`` seconds, or ``idle`` ones in which nothing happens.

        With ``last``, only so many events are kept. Recording ends with an oops, a BUG or a panic,
        and with ``stop_on_warn`` with a WARN. Accesses to the variables of ``watch``, such as
        ``"pid_max:rw-"``, are recorded too. With ``probe``, such as ``"r do_mkdirat $retval"``,
        hits of probes are recorded, and calls only of functions that ``filter`` selects.

        ``append`` is for the kernel's command line, ``qemu`` for QEMU's; ``keep`` is a new folder
        for the copy, the stream of events and the console. Raises UsageError without QEMU, and for
        what cannot be traced.
        """
        from ftpatch.api.booting import BootWords
        from ftpatch.api.traced_boot import Boot
        from ftpatch.boot.plan import BootTracing
        from ftpatch.ftrace.filter import Selection

        words = BootWords(
            selection=Selection(patterns("filter", filter), patterns("notrace", notrace), regex),
            tracing=BootTracing(sink=sink, until=until, most=max, time=time),
            append=patterns("append", append),
            words=qemu,
            limit=limit,
            idle=idle,
            last=last,
            stop_on_warn=stop_on_warn,
            watches=patterns("watch", watch),
            probes=patterns("probe", probe),
        )
        return Boot.run(self.path, words, None if keep is None else path_of("keep", keep))

    def undo(
        self,
        *,
        everything: bool = False,
        **options: Unpack[WritingOptions],
    ) -> Path | None:
        """Take back the latest command that wrote the image, or ``everything``, in place unless
        there is an ``output``; the path of what was written.

        Raises InputError without a journal, SiteRefused where the image was modified by something
        else.
        """
        writing = writing_of(self.path, options)
        return write_undo(writing, everything=everything).written


def open(path: AnyPath) -> Image:
    """Open an image. Raises InputError for what is none."""
    return Image(path)


def _tracing(
    tracer: str | None, max_stack: int, size: int, *, args: bool, keeping: tuple[bool, bool, int]
) -> Tracing | None:
    if tracer is None:
        return None
    from ftpatch.inject.runtime import MAX_ROTATE, Keeping
    from ftpatch.tracer.plan import Tracing

    require_text(tracer=tracer)
    require_limits(max_stack=max_stack, size=size)
    ring, off, rotate = keeping
    if not 0 <= rotate <= MAX_ROTATE:
        raise UsageError(None, f"rotate: {rotate} is not between 0 and {MAX_ROTATE}")
    kept = Keeping(ring=ring, off=off, rotate=rotate)
    return Tracing(tracer=tracer, depth=max_stack, size=size, arguments=args, keeping=kept)


def _written(writing: Writing, plan: Planner) -> Outcome:
    updated = write_update(writing, plan)
    outcome = updated.prepared.outcome(updated.written, verbose=True)
    if outcome.refused and not writing.dry_run:
        (bug, reason), number = outcome.refused[0], len(outcome.refused)
        sites = "1 site" if number == 1 else f"{number} sites"
        error = SiteRefused(
            writing.image, f"{sites} refused, nothing was written: {bug.place}: {reason}"
        )
        error.refused = outcome.refused
        raise error
    return outcome
