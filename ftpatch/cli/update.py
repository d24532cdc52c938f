"""What enable and disable share: verify all, then write all, then say what was done."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ftpatch.cli.console import count, error_line, json_line, lines, wait_for
from ftpatch.errors import Exit, InputError, UsageError

if TYPE_CHECKING:
    from ftpatch.bug import FtraceBug
    from ftpatch.plan import Plan
    from ftpatch.sites import Sites

__all__ = ["Update", "output_path", "run_update"]


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


def output_path(image: Path, output: Path | None, in_place: bool) -> Path:
    """Where to write. Raises UsageError for two places, or for a link to be replaced."""
    if in_place and output is not None:
        raise UsageError(None, "--in-place and -o name two outputs", "choose one")
    if not image.name:
        raise InputError(image, "not a regular file", "give one image")
    if in_place and image.is_symlink():
        raise UsageError(image, "a link cannot be replaced in place", "name the file itself")
    if in_place:
        return image
    return output or image.with_name(image.name + ".ftpatch")


def run_update(update: Update, plan: Callable[[Sites], Plan]) -> None:
    """Plan with the image's sites, verify, write. Exits 1 where a site is refused."""
    begun = time.monotonic()
    target = output_path(update.image, update.output, update.in_place)
    # The copy runs while everything heavy is imported and planned.
    from ftpatch.copy import Copy

    with Copy(
        update.image,
        None if update.dry_run else target,
        force=update.force,
        allow_setuid=update.allow_setuid,
        in_place=update.in_place,
    ) as copy:
        from ftpatch.image import open_image
        from ftpatch.refusals import refusals
        from ftpatch.sites import read_sites
        from ftpatch.verify import verify
        from ftpatch.write import write

        sites = read_sites(open_image(update.image))
        planned = plan(sites)
        verdict = verify(sites.image, planned.changes, sites.arch.align)
        refused = [] if verdict.passed else refusals(sites, verdict, planned.action)
        if not refused and not update.dry_run:
            wait_for(copy)
            write(copy, planned.changes)
    seconds = time.monotonic() - begun
    written = None if refused or update.dry_run else target
    if update.as_json:
        _json(planned, refused, written, seconds)
    else:
        _refused(update.image, refused)
        if not update.quiet:
            _summary(planned, len(refused), written, seconds, len(sites))
        if update.verbose and not refused:
            _each(sites, planned)
    if refused:
        if not update.as_json:
            error_line(
                f"{update.image}: {count(len(refused), 'site')} refused; nothing was written"
            )
        raise typer.Exit(Exit.FOUND)


def _json(
    plan: Plan, refused: list[tuple[FtraceBug, str]], written: Path | None, seconds: float
) -> None:
    json_line(
        {
            "output": None if written is None else str(written),
            "changed": 0 if refused else plan.changed,
            "unchanged": plan.unchanged,
            "dropped": 0 if refused else plan.dropped,
            "restored": 0 if refused else plan.restored,
            "seconds": round(seconds, 3),
            "failed": [
                {
                    "ip": hex(bug.ip),
                    "symbol": bug.place if bug.symbol else "",
                    "reason": reason,
                    "actual": bug.actual.hex(":"),
                    "expected": bug.expected.hex(":"),
                }
                for bug, reason in refused
            ],
        }
    )


def _refused(image: Path, refused: list[tuple[FtraceBug, str]], shown: int = 10) -> None:
    from ftpatch.bug import bug_text

    for bug, reason in refused[:shown]:
        error_line(f"{image}: {bug.place}: {reason}")
        lines(bug_text(bug).splitlines(), error=True)
    if len(refused) > shown:
        error_line(f"... and {len(refused) - shown} more; --json has all")


def _each(sites: Sites, plan: Plan) -> None:
    """Every changed site."""
    from ftpatch.changes import Kind

    ip = plan.changes.owner[plan.changes.kind == Kind.CODE]
    for at, (name, offset, _) in zip(ip.tolist(), sites.image.kallsyms.lookup(ip), strict=True):
        lines([f"{at:#x} {name}+{offset:#x}" if name else f"{at:#x}"])


def _summary(plan: Plan, refused: int, written: Path | None, seconds: float, total: int) -> None:
    if plan.new and plan.changed:
        lines([f"converting mcount calls to {plan.new.hex(' ')}"])
    done = 0 if refused else plan.changed
    lines(
        [
            f"{count(total, 'site')}, {plan.selected} selected: {done} changed, {plan.unchanged} "
            f"unchanged, {0 if refused else plan.dropped} dropped, {refused} refused, "
            f"{seconds:.2f} seconds"
        ]
    )
    if refused:
        return
    if plan.dropped:
        lines(
            [
                f"{count(plan.dropped, 'record')} dropped: these functions are out of reach of "
                "ftrace, BPF fentry and live patching"
            ]
        )
    if plan.restored:
        lines([f"{count(plan.restored, 'record')} restored"])
    if written is None:
        lines(["dry run: nothing was written"])
    else:
        plain = "" if len(plan.changes) else ", a plain copy: nothing had to change"
        lines([f"wrote {written}{plain}"])
