# SPDX-License-Identifier: MIT
"""Probes laid into a program, and those that it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ftpatch.api.probe_texts import parsed_probes, pattern_of
from ftpatch.api.recording_limits import (
    MAX_STACK,
    TRACE_SIZE,
    WILDCARD_LIMIT,
    require_limits,
)
from ftpatch.api.writing import Wait, Writing, copy_of, output_path, require_place
from ftpatch.errors import Refused, UsageError

if TYPE_CHECKING:
    from ftpatch.api.laid_in import Contents, LaidIn
    from ftpatch.image import Image
    from ftpatch.inject.runtime import Keeping
    from ftpatch.probe import Definition
    from ftpatch.probe.found import Placed
    from ftpatch.probe.kernel_events import Form
    from ftpatch.probe.plan import Handler

__all__ = [
    "PlacedProbe",
    "Probe",
    "ProbeWords",
    "Probed",
    "kernel_lines",
    "parsed_probes",
    "pattern_of",
    "probe_listing",
    "probes_of",
    "write_probes",
]


class Probe(NamedTuple):
    """A probe that a program has; the fields are those of ``ftpatch probe --json PROG``."""

    definition: str
    ip: int
    way: str


class PlacedProbe(NamedTuple):
    """A probe that was inserted; the fields are those of ``ftpatch probe --json``: ``address`` is
    where the file is changed, or the copy of its ``library``, if it has one; ``reason`` why the
    preceding way was not usable."""

    name: str
    definition: str
    address: int
    way: str
    reason: str
    library: str = ""


@dataclass(frozen=True, kw_only=True)
class ProbeWords:
    """The options of ``probe``: ``handler`` is STUB:FUNC, ``size`` that of a trace file in bytes;
    wildcards are a ``regex`` or globs, and match at most ``limit`` functions; ``sink``: of a
    kernel, the device that hits go to; ``ring``: the latest hits are kept when the file is full;
    ``off``: none until recording is switched on; ``rotate``: full files that are kept while it goes
    on in another; ``signal``: the number of one that switches recording."""

    probes: Sequence[str]
    handler: str | None = None
    optimize: bool = True
    keep_going: bool = False
    max_stack: int = MAX_STACK
    size: int = TRACE_SIZE
    regex: bool = False
    limit: int = WILDCARD_LIMIT
    sink: str = ""
    ring: bool = False
    off: bool = False
    rotate: int = 0
    signal: int = 0

    @property
    def keeping(self) -> Keeping:
        """The choice of hits to keep."""
        from ftpatch.inject.runtime import Keeping

        return Keeping(ring=self.ring, off=self.off, rotate=self.rotate, signal=self.signal)


@dataclass(frozen=True, kw_only=True)
class Probed:
    """The probes that were inserted, and ``refused``, the errors of those that were not, besides
    ``skipped``, those of functions that only a wildcard named; the output is ``target``, and
    ``written``, None for a dry run. ``handled``: the functions by which the program could itself
    set or block the traps' ``signal`` (none without breakpoints); ``cleared``: a property that the
    output has no longer; ``names``: how many the file had whose place the output took;
    ``dropped``: a kernel's records that were dropped, and what that means (``unrecorded``);
    ``copies``: those of libraries with probes, written before the output."""

    probes: tuple[PlacedProbe, ...]
    refused: tuple[UsageError, ...]
    handled: tuple[str, ...]
    cleared: str
    target: Path
    written: Path | None
    names: int
    dropped: int = 0
    unrecorded: str = ""
    skipped: tuple[UsageError, ...] = ()
    copies: tuple[Path, ...] = ()
    signal: str = ""


def write_probes(
    writing: Writing, words: ProbeWords, refused: Refused, wait: Wait = lambda _: None
) -> Probed:
    """Insert probes. ``refused`` collects the errors of those that cannot be; without
    ``keep_going`` the last of them is raised, the others stay there, and nothing is written. Raises
    what planning raises, and OutputError."""
    from ftpatch.image import open_image
    from ftpatch.probe.removal import is_removal

    require_limits(max_stack=words.max_stack, size=words.size, limit=words.limit)
    image = open_image(writing.image)
    removals = [text for text in words.probes if is_removal(text)]
    texts = [text for text in words.probes if text not in removals]
    definitions = parsed_probes(image, texts, refused, pattern=pattern_of(words.regex))
    copies: tuple[Path, ...] = ()
    handler = _handler(words.handler)
    target = output_path(writing.image, writing.output, writing.in_place)
    if writing.dry_run:
        require_place(writing, target)
    with copy_of(writing, target, in_place=writing.in_place) as copy:
        from ftpatch.api.laid_in import laid_in
        from ftpatch.api.probed_copies import copies_beside, require_beside, written_beside
        from ftpatch.probe.plan import Probing, plan_probed
        from ftpatch.probe.wildcards import Wildcards
        from ftpatch.update.update import cleared_name, lay_in

        has = laid_in(image)
        if has is None and removals:
            raise UsageError(image.path, f"{removals[0].strip()}: no probes in this program")
        probing = Probing(
            definitions=definitions,
            optimize=words.optimize,
            handler=handler,
            depth=words.max_stack,
            size=words.size,
            wildcards=Wildcards(regex=words.regex, limit=words.limit),
            folder=copies_beside(target).name,
            keeping=words.keeping,
        )
        if has is None:
            probed = plan_probed(image, probing, refused)
        else:
            contents = _with_words(has, words, removals, definitions, refused)
            probed = has.planned(contents, refused)
        if refused.errors and not words.keep_going:
            raise refused.errors.pop()
        if writing.dry_run:
            require_beside(target, probed.copies, force=copy.force)
        else:
            wait(copy)
            with written_beside(target, probed.copies, force=copy.force) as copies:
                lay_in(copy, image, probed.plan)
        cleared = cleared_name(image, probed.plan.changes)
    return Probed(
        probes=tuple(map(_placed, probed.placed)),
        refused=tuple(refused.errors),
        handled=tuple(probed.asks),
        cleared=cleared,
        target=target,
        written=None if writing.dry_run else target,
        names=copy.names,
        skipped=tuple(refused.skipped.values()),
        copies=copies,
        signal=probed.signal,
    )


def _with_words(
    has: LaidIn,
    words: ProbeWords,
    removals: Sequence[str],
    new: Sequence[Definition],
    refused: Refused,
) -> Contents:
    """What a program will have: the probes that are left, ``new`` ones, and all else. Raises
    UsageError for options that all of a program's probes share."""
    from ftpatch.api.laid_in import alone
    from ftpatch.probe.removal import remaining, require_new
    from ftpatch.probe.wildcards import Wildcards

    held, path = has.contents, has.image.path
    if held.probes and new and words.optimize is not held.optimize:
        has_jumps = "were inserted without" if held.optimize else "were inserted with"
        how = "remove it" if held.optimize else "add it"
        raise UsageError(path, f"the probes that it has {has_jumps} --no-optimize", how)
    if words.handler is not None:
        raise alone(has.image, "--handler is for all probes of a program")
    left = remaining(held.probes, removals, refused)
    more = require_new(left, new, refused)
    if left and not has.image.is_library and any(one.library for one in more):
        raise alone(has.image, "probes of libraries cannot be added to others")
    return replace(
        held.recording(words.max_stack, words.size, words.keeping),
        probes=(*left, *more),
        optimize=held.optimize if held.probes else words.optimize,
        wildcards=Wildcards(regex=words.regex, limit=words.limit),
    )


def probes_of(image: Image) -> tuple[Probe, ...] | None:
    """The probes of a program, by address; None if it has none. Raises InputError for corrupt
    tables."""
    from ftpatch.inject.probe_methods import METHODS
    from ftpatch.probe.read_back import injected_probes

    held = injected_probes(image) if image.is_program or image.is_library else None
    if held is None:
        return None
    ways = {method.number: method.name for method in METHODS}
    return tuple(Probe(one.text, one.ip, ways.get(one.way, "")) for one in held)


def _placed(one: Placed) -> PlacedProbe:
    from ftpatch.probe import definition_text

    text, way = definition_text(one.definition), one.method.name
    return PlacedProbe(
        one.definition.event, text, one.address, way, one.why, one.definition.library
    )


def kernel_lines(image: Image, probes: Sequence[str], form: Form, refused: Refused) -> list[str]:
    """Probes of a kernel or a module as lines of kprobe_events or of a bootconfig, leaving out
    those that are ``refused``. Raises UsageError for anything else."""
    from ftpatch.arch import arch_of
    from ftpatch.arch.registers import registers_of
    from ftpatch.probe.kernel_events import event_lines, for_kernel

    definitions = parsed_probes(image, probes, refused, kernel=True)
    arch = arch_of(image.elf.skeleton.machine, image.elf.skeleton.elf_class)
    registers = registers_of(arch.name if arch else "")
    lines = []
    for one in for_kernel(image, definitions, registers, refused):
        with refused.told(image.path):
            lines += event_lines(one, form)
    return lines


def probe_listing(path: Path, *, function: str = "", place: str = "") -> list[str]:
    """The lines of a ``function``, or what can be named at a ``place``. Raises UsageError and
    InputError."""
    from ftpatch.image import open_image
    from ftpatch.probe.listings import function_lines, named_values

    image = open_image(path)
    return function_lines(image, function) if function else named_values(image, place)


def _handler(text: str | None) -> Handler | None:
    """``STUB:FUNC``."""
    from ftpatch.probe.plan import Handler

    if text is None:
        return None
    stub, _, name = text.rpartition(":")
    if not stub or not name:
        raise UsageError(None, f"--handler {text}: no function", "use STUB.elf:FUNC")
    return Handler(stub=Path(stub), name=name)
