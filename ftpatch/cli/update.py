"""Common path of enable and disable: verify all, write all, report."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import typer

from ftpatch.cli.console import count, error_line, json_line, lines, tell_links, wait_for
from ftpatch.errors import Exit, InputError, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ftpatch.core.changes import Changes
    from ftpatch.ftrace.ftrace_bug import FtraceBug
    from ftpatch.ftrace.plan import Plan
    from ftpatch.ftrace.sites import Sites
    from ftpatch.image import Image
    from ftpatch.update.update import Outcome

__all__ = [
    "Planner",
    "Update",
    "cleared_line",
    "outcome_row",
    "output_path",
    "refused_lines",
    "run_update",
    "tell_cleared",
]


PACKED_AS = {"gzip": ".gz", "xz": ".xz", "zstd": ".zst"}
PACKED = set(PACKED_AS.values())
"""Ends of names that say how a module is packed."""


@dataclass(frozen=True, slots=True)
class Update:
    """The options of a command that writes."""

    image: Path
    output: Path | None
    in_place: bool
    force: bool
    allow_setuid: bool
    dry_run: bool
    as_json: bool
    quiet: bool
    verbose: bool
    strip_signature: bool


@dataclass(frozen=True)
class Planner(ABC):
    """Plans a verb's update of an image, or of each of many, by the options that select
    sites."""

    filters: Sequence[str]
    notrace: Sequence[str]
    regex: bool
    site: str | None
    keep_records: bool

    @abstractmethod
    def __call__(self, sites: Sites, missing: set[str] | None = None) -> Plan:
        """The plan. ``missing`` collects filters that match nothing in one of many modules; without
        it they are errors."""

    def selected(self, sites: Sites, missing: set[str] | None) -> NDArray[np.bool_]:
        """Mask of the chosen sites."""
        from ftpatch.ftrace.filter import Selection, select_sites

        return select_sites(sites, Selection(self.filters, self.notrace, self.regex), missing)

    def expanded(self) -> Self:
        """The same with the lines of filter files in their place: a pipe can be read once."""
        from ftpatch.ftrace.filter import Selection, expand

        lists = expand(Selection(self.filters, self.notrace, self.regex))
        return replace(self, filters=lists.filters, notrace=lists.notrace)


def output_path(image: Path, output: Path | None, in_place: bool) -> Path:
    """Choose the output's path. Raises UsageError for two places, or for a link to be replaced."""
    if in_place and output is not None:
        raise UsageError(None, "--in-place and -o are mutually exclusive", "choose one")
    if not image.name:
        raise InputError(image, "not a regular file", "use a single image")
    if in_place and image.is_symlink():
        raise UsageError(image, "a symbolic link cannot be replaced in place", "use its target")
    if in_place:
        return image
    return output or image.with_name(image.name + ".ftpatch")


def run_update(update: Update, plan: Planner) -> None:
    """Plan with the image's sites, verify, write. Exits 1 where a site is refused."""
    if update.image.is_dir():
        from ftpatch.cli.update_tree import run_tree_update

        run_tree_update(update, plan)
        return
    begun = time.monotonic()
    target = output_path(update.image, update.output, update.in_place)
    # The copy runs while everything heavy is imported and planned.
    from ftpatch.io.output import Copy

    with Copy(
        update.image,
        None if update.dry_run else target,
        force=update.force,
        allow_setuid=update.allow_setuid,
        in_place=update.in_place,
    ) as copy:
        from ftpatch.update.update import prepare
        from ftpatch.update.update import update as write

        prepared = prepare(update.image, plan, strip_signature=update.strip_signature)
        packed = prepared.image.compression
        if update.output and target.suffix in PACKED and target.suffix != PACKED_AS.get(packed):
            how = f"the output is compressed like the input ({packed or 'uncompressed'})"
            raise UsageError(target, how, "use a name with a matching suffix")
        if not prepared.refused and not update.dry_run:
            wait_for(copy)
            write(copy, prepared)
    tell_links(copy)
    seconds = time.monotonic() - begun
    outcome = prepared.outcome(None if update.dry_run else target, verbose=update.verbose)
    if update.as_json:
        json_line(outcome_row(outcome, seconds))
    else:
        refused_lines(update.image, outcome)
        if not update.quiet:
            _summary(outcome, seconds)
        for at, place in zip(outcome.ip.tolist(), outcome.places, strict=True):
            lines([f"{at:#x} {place}".rstrip()])
    if outcome.refused:
        if not update.as_json:
            number = count(len(outcome.refused), "site")
            error_line(f"{update.image}: {number} refused; nothing was written")
        raise typer.Exit(Exit.FOUND)


def outcome_row(outcome: Outcome, seconds: float | None = None) -> dict[str, Any]:
    """An outcome as JSON."""
    row: dict[str, Any] = {
        "output": None if outcome.written is None else str(outcome.written),
        "changed": outcome.changed,
        "unchanged": outcome.unchanged,
        "dropped": outcome.dropped,
        "restored": outcome.restored,
    }
    if seconds is not None:
        row["seconds"] = round(seconds, 3)
    if outcome.undefined:
        row["undefined"] = outcome.undefined
    if outcome.cleared:
        row["cleared"] = outcome.cleared
    return row | {"failed": [_failed(bug, reason) for bug, reason in outcome.refused]}


def _failed(bug: FtraceBug, reason: str) -> dict[str, str]:
    return {
        "ip": hex(bug.ip),
        "symbol": bug.place if bug.symbol else "",
        "reason": reason,
        "actual": bug.actual.hex(":"),
        "expected": bug.expected.hex(":"),
    }


def refused_lines(image: Path, outcome: Outcome, shown: int = 10) -> None:
    """The refused sites, as ftrace_bug prints them."""
    from ftpatch.ftrace.ftrace_bug import bug_text

    for bug, reason in outcome.refused[:shown]:
        error_line(f"{image}: {bug.place}: {reason}")
        lines(bug_text(bug).splitlines(), error=True)
    if len(outcome.refused) > shown:
        error_line(f"... and {len(outcome.refused) - shown} more; use --json for all")


def _summary(outcome: Outcome, seconds: float) -> None:
    refused = len(outcome.refused)
    if outcome.new and outcome.changed:
        lines([f"converting mcount calls to {outcome.new.hex(' ')}"])
    lines(
        [
            f"{count(outcome.sites, 'site')}, {outcome.selected} selected: {outcome.changed} "
            f"changed, {outcome.unchanged} unchanged, {outcome.dropped} dropped, {refused} "
            f"refused, {seconds:.2f} seconds"
        ]
    )
    if refused:
        return
    if outcome.undefined:
        lines([undefined_line(outcome.undefined, outcome.versioned)])
    if outcome.dropped:
        lines([dropped_line(outcome.dropped, outcome.unrecorded)])
    if outcome.cleared:
        lines([cleared_line(outcome.cleared)])
    if outcome.restored:
        lines([f"{count(outcome.restored, 'record')} restored"])
    if outcome.written is None:
        lines(["dry run: nothing was written"])
    else:
        plain = ", an unmodified copy: nothing to change" if outcome.plain else ""
        lines([f"wrote {outcome.written}{plain}"])


def dropped_line(number: int, meaning: str) -> str:
    """Summarize dropped records, and what that means for their functions."""
    return f"{count(number, 'record')} dropped: {meaning}"


def cleared_line(name: str) -> str:
    """Explain a property that the output no longer has."""
    return f"{name} cleared: replaced return addresses would fault under a shadow stack"


def tell_cleared(path: Path, image: Image, changes: Changes) -> None:
    """The same of a copy that is traced, on standard error."""
    from ftpatch.elf.properties import cleared_property

    name = cleared_property(image, changes)
    if name:
        error_line(f"{path}: in the running copy, {cleared_line(name)}")


def undefined_line(name: str, versioned: bool) -> str:
    """Explain a callee that a module does not define; ``versioned``: with CRCs of the others."""
    from ftpatch.ftrace.callees import CALLERS

    if name in CALLERS:
        return f"{name}: not exported to modules, so insmod will fail (Unknown symbol)"
    line = f"{name} is undefined: the kernel or another module must export it"
    if versioned:
        line += "; the module has no CRC for it, as CONFIG_MODVERSIONS requires"
    return line
