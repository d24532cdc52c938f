# SPDX-License-Identifier: MIT
"""Findings for programs: one JSON object a line."""

from __future__ import annotations

from typing import Any

from ftpatch.cli.check_formats.finding import Notes, Results, remarks
from ftpatch.cli.console import error_line, json_line
from ftpatch.errors import FtpatchError

__all__ = ["json_lines"]


def json_lines(results: Results, notes: Notes) -> None:
    """Print an object for each finding, and for each note; what could not be read goes to standard
    error."""
    for path, outcome in results:
        if isinstance(outcome, FtpatchError):
            error_line(str(outcome))
            continue
        for finding in outcome.findings:
            row: dict[str, Any] = {
                "path": str(path),
                "invariant": finding.invariant,
                "ip": None if finding.ip is None else hex(finding.ip),
                "symbol": finding.symbol,
                "message": finding.message,
            }
            if outcome.pid:
                row["pid"] = outcome.pid
            if outcome.core is not None:
                row["core"] = str(outcome.core)
            if outcome.ftrace_init is not None:
                row["verdict"] = outcome.ftrace_init.verdict.value
            json_line(row | ({"bug": finding.bug} if finding.bug else {}))
        for note in outcome.notes:
            places = zip(note.ip, note.symbols, strict=True)
            sites = [{"ip": hex(ip), "symbol": symbol} for ip, symbol in places]
            about = {"path": str(path), "invariant": None, "note": note.message}
            json_line(about | {"sites": sites})
    remarks(notes)
