"""``ftpatch check``: invariants of the table and its sites, and what ftrace_init will say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ftpatch.cli.console import count, lines, watched
from ftpatch.cli.options import Images, Json, Quiet, Verbose
from ftpatch.cli.reports import Notes, Results, report_for
from ftpatch.errors import Exit, FtpatchError, UsageError
from ftpatch.tree import each, module_paths, no_modules

if TYPE_CHECKING:
    from ftpatch.check import Check
    from ftpatch.check.baseline import Baseline

__all__ = ["NAME", "command"]

NAME = "check"

CheckFormat = Annotated[
    str | None,
    typer.Option("--format", metavar="text|json|github|junit", help="--json is --format json."),
]
BaselineFile = Annotated[
    Path | None,
    typer.Option("--baseline", metavar="FILE", help="Findings that are known, and do not count."),
]
WriteBaseline = Annotated[
    Path | None,
    typer.Option("--write-baseline", metavar="FILE", help="Make today's findings the known ones."),
]
Keyed = Iterable[tuple[Path, str, "Check | FtpatchError"]]
"""Path, the name by which a baseline knows the image (its file name; in a tree the path from its
root), and what the check says or why there is none."""


def command(
    images: Images,
    json: Json = False,
    format_: CheckFormat = None,
    baseline: BaselineFile = None,
    write_baseline: WriteBaseline = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Check the table and the sites; for a kernel, predict what its ftrace_init will report."""
    report = report_for(json, format_)
    if baseline is not None and write_baseline is not None:
        raise typer.BadParameter("--baseline and --write-baseline are one too many")
    many = any(path.is_dir() for path in images)
    if baseline is not None or write_baseline is not None:
        _distinct(images)
    rows: Keyed = _checked(images)
    known: Baseline | None = None
    if baseline is not None:
        from ftpatch.check.baseline import read_baseline

        known = read_baseline(baseline)
    elif write_baseline is not None:
        rows = list(rows)
        known = _write(write_baseline, rows, quiet)
    gate = _Gate(known)
    report(gate.through(rows), Notes(quiet, verbose, many, _stale(baseline, known)))
    if gate.code:
        raise typer.Exit(gate.code)


def _checked(images: list[Path]) -> Keyed:
    """Every image with its check; a tree's modules are known by their place in it."""
    from ftpatch.check import check_image

    for image in images:
        if not image.is_dir():
            try:
                yield image, image.name, check_image(image)
            except FtpatchError as error:
                yield image, image.name, error
            continue
        modules, errors = module_paths(image)
        for unread in errors or ([] if modules else [no_modules(image)]):
            place = Path(unread.path or image)
            yield place, str(place.relative_to(image)), unread
        for path, result in watched(each(check_image, modules), len(modules), "modules"):
            yield path, str(path.relative_to(image)), result


class _Gate:
    """Lets results pass, less what is known, and adds up the exit code on the way."""

    def __init__(self, known: Baseline | None) -> None:
        self.code = Exit.DONE
        self._known = known

    def through(self, rows: Keyed) -> Results:
        for path, key, check in rows:
            if isinstance(check, FtpatchError):
                self.code = Exit.ERROR
                yield path, str(check)
                continue
            left = check if self._known is None else self._known.sift(key, check)
            if left.findings:
                self.code = max(self.code, Exit.FOUND)
            yield path, left


def _distinct(images: list[Path]) -> None:
    """Raise UsageError for two images that a baseline could not tell apart."""
    seen: dict[str, Path] = {}
    for path in images:
        key = "" if path.is_dir() else path.name
        if seen.setdefault(key, path) is not path:
            raise UsageError(
                path,
                f"a baseline knows images by name, and {seen[key]} has the same"
                if key
                else f"a baseline knows modules by their place in the tree, and {seen[key]} is one",
                "check them one by one, each with a baseline of its own",
            )


def _write(path: Path, rows: Keyed, quiet: bool) -> Baseline | None:
    """Write a baseline, unless an image could not be read: it would forget what that has."""
    from ftpatch.check.baseline import write_baseline

    checked = [(key, check) for _, key, check in rows if not isinstance(check, FtpatchError)]
    if len(checked) < len(list(rows)):
        lines([f"ftpatch: {path}: not written, since not all images can be read"], error=True)
        return None
    known = write_baseline(path, checked)
    if not quiet:
        total = sum(len(check.findings) for _, check in checked)
        lines([f"ftpatch: wrote {path}: {count(total, 'known exception')}"], error=True)
    return known


def _stale(path: Path | None, known: Baseline | None) -> Iterator[str]:
    """A line for each entry of the baseline that is not needed any more."""
    if path is not None and known is not None:
        for entry in known.stale():
            yield f"{path}: stale: {entry.image}: {entry.invariant}: {entry.place}"
