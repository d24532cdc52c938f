"""``ftpatch check``: invariants of the table and its sites, and what ftrace_init will say."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import typer

from ftpatch.cli.console import error_line, json_line, lines
from ftpatch.cli.options import Format, Images, Json, Quiet, Verbose, wants_json
from ftpatch.errors import Exit, FtpatchError, NoTable

if TYPE_CHECKING:
    from pathlib import Path

    from ftpatch.check import Check

__all__ = ["NAME", "command"]

NAME = "check"


def command(
    images: Images,
    json: Json = False,
    format_: Format = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Check the table and the sites; for a kernel, predict what its ftrace_init will report."""
    as_json = wants_json(json, format_)
    code = Exit.DONE
    for path in images:
        try:
            result = _check(path)
        except FtpatchError as error:
            error_line(str(error))
            code = Exit.ERROR
            continue
        if result.findings:
            code = max(code, Exit.FOUND)
        if as_json:
            _json(path, result)
        else:
            _text(path, result, quiet)
            if verbose:
                _each(path, result)
    if code:
        raise typer.Exit(code)


def _check(path: Path) -> Check:
    from ftpatch.check import Check, Finding, check_sites
    from ftpatch.image import open_image
    from ftpatch.sites import read_sites

    image = open_image(path)
    try:
        return check_sites(read_sites(image))
    except NoTable as error:
        return Check((Finding("table-found", 0, "", f"{error.reason}; {error.hint}"),), None)


def _json(path: Path, result: Check) -> None:
    for finding in result.findings:
        row = {
            "path": str(path),
            "invariant": finding.invariant,
            "ip": hex(finding.ip),
            "symbol": finding.symbol,
            "message": finding.message,
        }
        json_line(row | ({"bug": finding.bug} if finding.bug else {}))


def _each(path: Path, result: Check) -> None:
    from ftpatch.check import INVARIANTS

    broken = Counter(finding.invariant for finding in result.findings)
    for name, words in INVARIANTS.items():
        found = f"{broken[name]} findings" if broken[name] else "holds"
        lines([f"{path}: {name}: {words}: {found}"])


def _text(path: Path, result: Check, quiet: bool) -> None:
    for finding in result.findings:
        place = f"{finding.ip:#x}" + (f" {finding.symbol}" if finding.symbol else "")
        lines([f"{path}: {finding.invariant}: {place}: {finding.message}"])
        if finding.bug:
            lines(finding.bug.splitlines())
    if quiet:
        return
    outlook = result.forecast
    if outlook is not None:
        end = "one ftrace bug" if outlook.bug else "no ftrace bug"
        lines([f"{path}: ftrace: allocating {outlook.entries} entries, {end}"])
    if not result.findings:
        lines([f"{path}: every invariant holds"])
