# SPDX-License-Identifier: MIT
"""Reports of ``check``, one file per format.

A report takes the results of all images in their order, each a path with a Check or, for what could
not be read, its error, and prints each as it comes (documents, when all have).
"""

from __future__ import annotations

from collections.abc import Callable

from ftpatch.cli.check_formats.finding import Notes, Results
from ftpatch.cli.check_formats.github import github
from ftpatch.cli.check_formats.json_lines import json_lines
from ftpatch.cli.check_formats.junit import junit
from ftpatch.cli.check_formats.sarif import sarif
from ftpatch.cli.check_formats.text import text

__all__ = ["FORMATS", "Notes", "Report", "Results"]

Report = Callable[[Results, Notes], None]
FORMATS: dict[str, Report] = {
    "text": text,
    "json": json_lines,
    "github": github,
    "junit": junit,
    "sarif": sarif,
}
