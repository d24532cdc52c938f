# SPDX-License-Identifier: MIT
"""Findings as annotations of GitHub Actions: workflow commands, which the runner picks out of a
job's output.

    ::error file=vmlinux,title=ftpatch site-known::message

The runner reads a line as a command if it begins with ``::``; the properties end at the next ``::``
(TryParseV2 in actions/runner, src/Runner.Common/ActionCommand.cs). It would also take ``##[...]``
anywhere in a line that is none. So everything is in a command, and nothing of a file can end it:
characters are escaped as actions/toolkit does (packages/core/src/command.ts), and what is not
printable as everywhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ftpatch.cli.check_formats.finding import Notes, Results, message, noted
from ftpatch.cli.check_formats.source_places import source_places
from ftpatch.cli.check_formats.tally import Tally
from ftpatch.cli.console import clean, lines
from ftpatch.cli.paint import painted
from ftpatch.errors import FtpatchError

__all__ = ["annotation", "github"]

DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
PROPERTY = DATA | str.maketrans({":": "%3A", ",": "%2C"})


def github(results: Results, notes: Notes) -> None:
    """Print an annotation for each finding, and for each image that could not be read, or a notice
    that there are none."""
    tally, told = Tally(), False
    for path, outcome in results:
        tally.add(path, outcome)
        file = str(path)
        if isinstance(outcome, FtpatchError):
            lines([annotation("error", [str(outcome)], file=file, title="ftpatch: cannot read")])
            told = True
            continue
        told = told or bool(outcome.findings or outcome.notes)
        places = source_places(path, outcome, outcome.findings)
        for finding, place in zip(outcome.findings, places, strict=True):
            said = [message(finding), *finding.bug.splitlines()]
            about = {"file": file} if place is None else _source(*place)
            title = f"ftpatch {finding.invariant}"
            title += f" in process {outcome.pid}" if outcome.pid else ""
            lines([annotation("error", said, **about, title=title)])
        if not notes.quiet:
            for note in outcome.notes:
                lines([annotation("notice", [noted(note)], file=file, title="ftpatch")])
    if not notes.quiet:
        last = list(notes.last)
        last += [] if told or last else [painted(tally.line(), colours=False)]
        lines(annotation("notice", [line], title="ftpatch") for line in last)


def _source(file: Path, line: int) -> dict[str, str]:
    return {"file": str(file), "line": str(line)}


def annotation(level: str, said: Sequence[str], **properties: str) -> str:
    """One workflow command, whose annotation has these lines."""
    data = "\n".join(map(clean, said)).translate(DATA)
    named = ",".join(f"{k}={clean(v).translate(PROPERTY)}" for k, v in properties.items())
    return f"::{level} {named}::{data}"
