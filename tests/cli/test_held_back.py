# SPDX-License-Identifier: MIT
"""Filters without a match: nothing is printed before that is known, however long it takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ftpatch.cli import held_back
from ftpatch.trace import batches
from tests.support.command import ftpatch
from tests.support.trace_writer import ENTRY, EXIT, Thread, TraceFile, program

FORMATS = ("function_graph", "profile", "histogram", "folded", "html", "chrome", "json", "function")
CALLS = 2000


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Many calls of one function, and at the very end one of another."""
    thread = Thread(100)
    for number in range(CALLS):
        name = "parse" if number < CALLS - 1 else "walk"
        thread.add(ENTRY, name, 20 * number).add(EXIT, name, 20 * number + 10)
    file = TraceFile([thread], header={"path": bytes(program(tmp_path / "prog"))})
    return file.write(tmp_path / "some.trace")


@pytest.fixture(params=[1, 3000, held_back.ROOM])
def _room(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were room for so much; and the trace is read in parts."""
    monkeypatch.setattr(held_back, "ROOM", request.param)
    monkeypatch.setattr(batches, "BATCH_WORDS", 64)


@pytest.mark.usefixtures("_room")
@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize(
    "words", [("-f", "wlak"), ("--trigger", "wlak@off"), ("-f", "parse", "-f", "wlak")]
)
def test_nothing_is_printed(format_: str, words: Sequence[str], trace: Path) -> None:
    done = ftpatch("report", trace, "--format", format_, *words)
    said = "ftpatch: filter 'wlak' matches no function in the trace; did you mean walk?\n"
    assert (done.code, done.out, done.err) == (2, "", said)


@pytest.mark.usefixtures("_room")
@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("words", [("--trigger", "walk@off"), ("-f", "parse", "-f", "walk")])
def test_a_late_match_changes_nothing(format_: str, words: Sequence[str], trace: Path) -> None:
    out = trace.with_name("out")
    printed = ftpatch("report", trace, "--format", format_, *words)
    assert ftpatch("report", trace, "--format", format_, *words, "-o", out).code == 0
    assert (printed.code, printed.out, printed.err) == (0, out.read_text(), "")
