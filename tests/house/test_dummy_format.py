# SPDX-License-Identifier: MIT
"""A report format is one file: dropped into a copy of the package it works as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.trace_writer import ENTRY, EXIT, Thread, TraceFile, program

ROOT = Path(__file__).parent.parent.parent
FORMAT = '''
"""Names of the functions that were called, in one line."""

from __future__ import annotations

from collections.abc import Iterator

from ftpatch.trace.render.style import Style
from ftpatch.trace.report import Report
from ftpatch.trace.rows import Kind
from ftpatch.trace.source import Data, EventSource

__all__ = ["REPORT"]


class DummyWords(Report):
    """Names alone."""

    name = "dummy_words"
    shows = Data.CALLS
    ends = (".words",)

    def render(self, source: EventSource, style: Style) -> Iterator[str]:
        for rows in source.rows():
            entered = rows.take(rows.kind == Kind.ENTER).function.tolist()
            yield " ".join(style.names(source.recording.functions)[one] for one in entered)
        yield "\\n"


REPORT: Report = DummyWords()
'''


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package in which there is one file more."""
    root = tmp_path_factory.mktemp("dropped")
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "ftpatch", root / "ftpatch", ignore=unwanted)
    (root / "stubs").symlink_to(ROOT / "stubs")
    (root / "ftpatch/trace/formats/dummy.py").write_text(FORMAT.lstrip())
    return root


def _run(copied: Path, *args: str | Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "ftpatch", *map(str, args)]
    environment = os.environ | {"PYTHONPATH": str(copied), "COLUMNS": "80"}
    return subprocess.run(words, cwd=copied, env=environment, capture_output=True, text=True)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Three calls."""
    thread = Thread(1).add(ENTRY, "main", 0).add(ENTRY, "parse", 100).add(EXIT, "parse", 200)
    thread.add(ENTRY, "walk", 300).add(EXIT, "walk", 400).add(EXIT, "main", 500)
    header: dict[str, int | bytes] = {"path": bytes(program(tmp_path / "prog"))}
    return TraceFile([thread], header=header).write(tmp_path / "prog.trace")


def test_a_dropped_format_reports(copied: Path, trace: Path) -> None:
    done = _run(copied, "report", trace, "--format", "dummy_words")
    assert (done.returncode, done.stdout) == (0, "main parse walk\n"), done.stderr


def test_it_is_named_where_formats_are(copied: Path, trace: Path) -> None:
    unknown = _run(copied, "report", trace, "--format", "xml")
    assert unknown.returncode == 2 and "dummy_words" in unknown.stderr
    near = _run(copied, "report", trace, "--format", "dummy_word")
    assert "did you mean dummy_words?" in near.stderr
    named = _run(copied, "trace", "-o", "x.words", trace.with_name("prog"))
    assert "to write a report, use --report dummy_words=x.words" in named.stderr


def test_without_the_file_there_is_no_such_format(trace: Path) -> None:
    done = _run(ROOT, "report", trace, "--format", "dummy_words")
    assert done.returncode == 2 and "unknown format 'dummy_words'" in done.stderr
