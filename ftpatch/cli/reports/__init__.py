"""What ``check`` prints, one file per format.

A report takes the results of all images in their order, each a path with a Check or, for what could
not be read, the reason in one line, and prints each as it comes (the JUnit document when all have).
"""

from __future__ import annotations

from collections.abc import Callable

import typer

from ftpatch.cli.reports.finding import Notes, Results
from ftpatch.cli.reports.github import github
from ftpatch.cli.reports.json_lines import json_lines
from ftpatch.cli.reports.junit import junit
from ftpatch.cli.reports.text import text

__all__ = ["FORMATS", "Notes", "Report", "Results", "report_for"]

Report = Callable[[Results, Notes], None]
FORMATS: dict[str, Report] = {"text": text, "json": json_lines, "github": github, "junit": junit}


def report_for(json: bool, format_: str | None) -> Report:
    """The report of a format. Raises BadParameter for one that is not there."""
    if format_ not in (None, *FORMATS):
        raise typer.BadParameter(f"--format is text, json, github or junit, not {format_!r}")
    if json and format_ not in (None, "json"):
        raise typer.BadParameter(f"--json and --format {format_} are two formats")
    return FORMATS["json" if json else format_ or "text"]
