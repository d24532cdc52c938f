# SPDX-License-Identifier: MIT
"""``ftpatch diff``: differences between two images, or an image and its original."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ftpatch.api.writing import SUFFIX
from ftpatch.cli.console import error_line, json_line, lines, table
from ftpatch.cli.options import Core, Format, Json, Quiet, require_kernel, wants_json
from ftpatch.cli.paint import fine
from ftpatch.errors import Exit, FtpatchError, UsageError
from ftpatch.names.demangle import demangled_place

if TYPE_CHECKING:
    from ftpatch.api.core_differences import CoreDifferences
    from ftpatch.api.differences import Differences
    from ftpatch.diff.diff import Difference

__all__ = ["command"]

SHOWN = 40


def command(
    image: Annotated[
        Path | None,
        typer.Argument(
            metavar="IMAGE",
            readable=False,
            help="Kernel, module, program or library [default: each file in the current directory "
            "that has a journal or a FILE.ftpatch beside it].",
        ),
    ] = None,
    other: Annotated[
        Path | None,
        typer.Argument(
            metavar="OTHER",
            readable=False,
            help="Image to compare with [default: the original that IMAGE's journal restores, or "
            "IMAGE.ftpatch].",
        ),
    ] = None,
    core: Core = None,
    stat: Annotated[bool, typer.Option("--stat", help="Group differences of one kind.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="N",
            min=0,
            help=f"Maximum number of sites, 0 for all [default: {SHOWN}, JSON: all].",
        ),
    ] = None,
    json: Json = False,
    format_: Format = None,
    quiet: Quiet = False,
) -> None:
    """Compare two images site by site.

    Changed sites are shown with the instructions of both sides, then all other differences. With
    --core, what was enabled in a kernel that crashed, or that runs, and what nothing explains.

    Example: ftpatch diff vmlinux vmlinux.ftpatch
    """
    show = _Show(wants_json(json, format_), stat, limit, quiet)
    if core is not None:
        from ftpatch.api.core_differences import CoreDifferences

        if other is not None:
            raise UsageError(None, "OTHER and --core are mutually exclusive", "choose one")
        kernel = require_kernel([] if image is None else [image], [])
        found = CoreDifferences.read(kernel, core)
        show.print(found)
        if not found.identical:
            raise typer.Exit(Exit.FOUND)
        return
    if image is not None:
        differs = show(image, other)
        code = Exit.FOUND if differs else Exit.DONE
    else:
        code = _here(show)
    if code:
        raise typer.Exit(code)


@dataclass(frozen=True)
class _Show:
    """What a comparison prints, and how."""

    as_json: bool
    stat: bool
    limit: int | None
    quiet: bool

    def __call__(self, image: Path, other: Path | None, path: str | None = None) -> bool:
        """Compare, and print what differs, with ``path`` of which file; whether anything does."""
        from ftpatch.api.differences import Differences, sides_of
        from ftpatch.image import open_image

        found = Differences(*sides_of(open_image(image), other))
        self.print(found, path)
        return not found.identical

    def print(self, found: Differences | CoreDifferences, path: str | None = None) -> None:
        """Print the differences."""
        named: dict[str, object] = {} if path is None else {"path": path}
        if self.as_json and self.stat:
            for kind, old, new, count in found.groups():
                json_line(named | {"kind": kind, "old": old, "new": new, "count": count})
        elif self.as_json:
            for row in [*found.sites(self.limit or None), *found.others]:
                json_line(named | _object(row))
        elif not self.quiet:
            if path is not None:
                lines([f"{path}:"])
            _text(found, self.stat, SHOWN if self.limit is None else self.limit)


def _here(show: _Show) -> Exit:
    """The files of this folder that a command changed, or of which it wrote another."""
    from ftpatch.image.folder import is_image

    code, seen = Exit.DONE, 0
    names = sorted(p.name for p in Path().iterdir() if p.is_file() and not p.is_symlink())
    written = {name for name in names if name.removesuffix(SUFFIX) in names and SUFFIX in name}
    for path in map(Path, names):
        beside = path.name + SUFFIX in written
        if not is_image(path, relocatable=True):
            continue
        try:
            if not beside and not _has_journal(path):
                continue
            if path.name in written and not _has_journal(path.with_name(path.name[: -len(SUFFIX)])):
                continue  # what it was written from was compared with it
            code = max(code, Exit.FOUND if show(path, None, path.name) else Exit.DONE)
        except FtpatchError as error:
            error_line(str(error))
            code = Exit.ERROR
        seen += 1
    if not seen and not show.quiet and not show.as_json:
        lines([f"no file in this directory has a journal or a FILE{SUFFIX} beside it"])
    return code


def _has_journal(path: Path) -> bool:
    from ftpatch.image import open_image

    return bool(open_image(path).blocks)


def _object(row: Difference) -> dict[str, object]:
    return {
        "kind": row.kind,
        "address": None if row.address is None else hex(row.address),
        "offset": row.offset,
        "symbol": row.symbol,
        "old": row.old,
        "new": row.new,
    }


def _text(found: Differences | CoreDifferences, stat: bool, limit: int) -> None:
    if found.identical:
        lines([fine("nothing differs")])
        return
    if found.moved:
        lines(["addresses moved: functions are compared by name"])
    if not len(found):
        lines(["different builds; no site differs"])
        return
    paired = found.paired
    if stat or (limit and paired > limit):
        groups, most = found.groups(), max(limit, SHOWN) if limit else None
        table(
            ("count", "kind", "before", "after"),
            ((count, kind, old, new) for kind, old, new, count in groups[:most]),
            numbers=[0],
        )
        if most is not None and len(groups) > most:
            lines([f"... and {len(groups) - most} more; --limit 0 shows all"])
    if stat:
        return
    rows = list(found.sites(limit or None))
    if rows:
        table(("kind", "place", "before", "after"), map(_line, rows))
    if limit and paired > limit:
        lines([f"... and {paired - limit} more sites; --limit 0 shows all"])
    others = found.others[: limit or None]
    if others:
        table(("kind", "place", "before", "after"), map(_line, others))
    if len(others) < len(found.others):
        lines([f"... and {len(found.others) - len(others)} more; --limit 0 shows all"])


def _line(row: Difference) -> tuple[str, str, str, str]:
    place = demangled_place(row.symbol) or (
        f"offset {row.offset:#x}" if row.address is None else hex(row.address)
    )
    return row.kind, place, _named(row.old), _named(row.new)


def _named(code: str) -> str:
    """Instructions, with the names of callees as in the source."""
    return " ".join(map(demangled_place, code.split(" ")))
