# SPDX-License-Identifier: MIT
"""``ftpatch check``: invariants of the table and its sites, and a prediction of ftrace_init."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ftpatch.cli.check_formats import FORMATS, Notes, Results
from ftpatch.cli.completion import check_formats
from ftpatch.cli.console import count, error_line, note_lines, watched
from ftpatch.cli.exclude import Exclude, Folders, images_below
from ftpatch.cli.options import (
    Core,
    Images,
    Json,
    Pids,
    Quiet,
    Verbose,
    format_of,
    require_input,
    require_kernel,
)
from ftpatch.errors import Exit, FtpatchError, UsageError
from ftpatch.io.tree import each

if TYPE_CHECKING:
    from ftpatch.ftrace.check.baseline import Baseline
    from ftpatch.ftrace.check.check import Check
    from ftpatch.ftrace.check.expected import Expected

__all__ = ["command"]


CheckFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="text|json|github|junit|sarif",
        autocompletion=check_formats,
        help="Output format.",
    ),
]
BaselineFile = Annotated[
    Path | None,
    typer.Option(
        "--baseline", metavar="FILE", help="File of known findings, which do not fail the check."
    ),
]
WriteBaseline = Annotated[
    Path | None,
    typer.Option("--write-baseline", metavar="FILE", help="Write the current findings to FILE."),
]
ExpectedFile = Annotated[
    Path | None,
    typer.Option("--expected", metavar="FILE", help="File of functions that must have a record."),
]
WriteExpected = Annotated[
    Path | None,
    typer.Option(
        "--write-expected", metavar="FILE", help="Write the functions that have a record to FILE."
    ),
]
Keyed = Iterable[tuple[Path, str, "Check | FtpatchError"]]
"""Path, the name by which a baseline knows the image (its file name; in a tree the path from its
root, in a process the whole path), and what the check says or why there is none."""


def command(
    images: Images = [],  # noqa: B006 - typer copies it
    pids: Pids = [],  # noqa: B006
    core: Core = None,
    exclude: Exclude = [],  # noqa: B006
    json: Json = False,
    format_: CheckFormat = None,
    baseline: BaselineFile = None,
    write_baseline: WriteBaseline = None,
    expected: ExpectedFile = None,
    write_expected: WriteExpected = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Check the table and its sites.

    For a kernel, predict the ftrace bugs that its ftrace_init will report at boot. With --pid,
    check each image that the process has loaded, and compare its code with its file. With --core,
    account for every byte of a kernel's text that is not as in its vmlinux.

    Example: ftpatch check vmlinux --baseline known.json
    """
    report = FORMATS[format_of(json, format_, FORMATS) or "text"]
    if baseline is not None and write_baseline is not None:
        raise typer.BadParameter("--baseline and --write-baseline are mutually exclusive")
    if expected is not None and write_expected is not None:
        raise typer.BadParameter("--expected and --write-expected are mutually exclusive")
    if core is not None:
        if expected is not None or write_expected is not None:
            raise UsageError(None, "--expected is about records, and --core about text", "drop one")
        require_kernel(images, pids)
    require_input(images, pids)
    folders = images_below(images, exclude)
    many = bool(folders or pids)
    if any(path is not None for path in (baseline, write_baseline, expected, write_expected)):
        _distinct(images)
    functions = expected is not None or write_expected is not None
    rows: Keyed = _checked(images, folders, functions=functions)
    if pids:
        from ftpatch.cli.check_process import process_checks

        rows = process_checks(pids, functions=functions)
    if core is not None:
        from ftpatch.kcore.check_text import check_text
        from ftpatch.kcore.in_core import open_in_core

        (image,) = images
        rows = [(image, image.name, check_text(open_in_core(image, core)))]
    required: Expected | None = None
    if expected is not None:
        from ftpatch.ftrace.check.expected import read_expected

        required = read_expected(expected)
        rows = _required(rows, required)
    known: Baseline | None = None
    if baseline is not None:
        from ftpatch.ftrace.check.baseline import read_baseline

        known = read_baseline(baseline)
    if write_baseline is not None or write_expected is not None:
        rows = list(rows)
    if write_expected is not None:
        _expect(write_expected, rows, quiet)
    if write_baseline is not None:
        known = _write(write_baseline, rows, quiet)
    gate = _Gate(known)
    last = chain(_stale(baseline, known), required.remarks(verbose) if required else ())
    report(gate.through(rows), Notes(quiet, verbose, many, last))
    if many and gate.bare and not gate.checked:
        error_line("no image has call sites: nothing was checked")
        gate.code = max(gate.code, Exit.FOUND)
    if gate.code:
        raise typer.Exit(gate.code)


def _checked(images: list[Path], folders: Folders, *, functions: bool) -> Keyed:
    """Every image with its check, and with ``functions`` those that have a record; a tree's images
    are known by their place in it."""
    from ftpatch.api.checking import check_image

    check = partial(check_image, functions=functions)
    for image in images:
        if image not in folders:
            try:
                yield image, image.name, check(image)
            except FtpatchError as error:
                yield image, image.name, error
            continue
        found, errors = folders[image]
        for unread in errors:
            place = Path(unread.path or image)
            yield place, str(place.relative_to(image)), unread
        check_each = partial(check, one_of_many=True)
        for path, result in watched(each(check_each, found), len(found), "images"):
            yield path, str(path.relative_to(image)), result


class _Gate:
    """Lets results pass, less what is known, and adds up the exit code on the way; counts the
    images that have call sites, and those that have none."""

    def __init__(self, known: Baseline | None) -> None:
        self.code = Exit.DONE
        self.checked = self.bare = 0
        self._known = known

    def through(self, rows: Keyed) -> Results:
        for path, key, check in rows:
            if isinstance(check, FtpatchError):
                self.code = Exit.ERROR
                yield path, check
                continue
            self.bare += check.bare
            self.checked += bool(check.pid) or not check.bare
            left = check if self._known is None else self._known.sift(key, check)
            if left.findings:
                self.code = max(self.code, Exit.FOUND)
            yield path, left


def _required(rows: Keyed, expected: Expected) -> Keyed:
    """The results with a finding for each record that is missing."""
    for path, key, check in rows:
        found = check if isinstance(check, FtpatchError) else expected.sift(path, key, check)
        yield path, key, found


def _distinct(images: list[Path]) -> None:
    """Raise UsageError for two images that a baseline could not tell apart."""
    seen: dict[str, Path] = {}
    for path in images:
        key = "" if path.is_dir() else path.name
        if seen.setdefault(key, path) is not path:
            raise UsageError(
                path,
                f"a baseline identifies images by name, and {seen[key]} has the same name"
                if key
                else f"a baseline can hold one tree only, and {seen[key]} is another",
                "check them one at a time, each with its own baseline",
            )


def _readable(path: Path, rows: Keyed) -> list[tuple[str, Check]] | None:
    """The checks that are to be written to a file; None if an image could not be read: the file
    would forget what that has."""
    rows = list(rows)
    checked = [(key, check) for _, key, check in rows if not isinstance(check, FtpatchError)]
    if len(checked) == len(rows):
        return checked
    error_line(f"{path}: not written: some images could not be read")
    return None


def _write(path: Path, rows: Keyed, quiet: bool) -> Baseline | None:
    """Write a baseline."""
    from ftpatch.ftrace.check.baseline import write_baseline

    checked = _readable(path, rows)
    if checked is None:
        return None
    done = _verb(path)
    known = write_baseline(path, checked)
    if not quiet:
        total = sum(len(check.findings) for _, check in checked)
        note_lines([f"{done} {path}: {count(total, 'known exception')}"])
    return known


def _verb(path: Path) -> str:
    return "replaced" if path.exists() else "wrote"


def _expect(path: Path, rows: Keyed, quiet: bool) -> None:
    """Write a list of expected functions."""
    from ftpatch.ftrace.check.expected import write_expected

    checked = _readable(path, rows)
    if checked is not None:
        done = _verb(path)
        total = write_expected(path, checked)
        if not quiet:
            note_lines([f"{done} {path}: {count(total, 'expected record')}"])


def _stale(path: Path | None, known: Baseline | None) -> Iterator[str]:
    """A line for each entry of the baseline that is not needed any more."""
    if path is not None and known is not None:
        for entry in known.stale():
            yield f"{path}: stale: {entry.image}: {entry.invariant}: {entry.place}"
