# SPDX-License-Identifier: MIT
"""``--open``: the browser that BROWSER names is a script that notes what it is given."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import Result, ftpatch_process, patched_process
from tests.support.trace_writer import ENTRY, EXIT, Thread, TraceFile, program

needs_gcc = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
)
BROWSER = '#!/bin/sh\nprintf "%s\\n" "$1" >>"${0%/*}/opened"\n'


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """One call, in a folder whose name is no URL."""
    folder = tmp_path / "a b#c"
    folder.mkdir()
    (folder / "browser").write_text(BROWSER)
    (folder / "browser").chmod(0o755)
    thread = Thread(1).add(ENTRY, "main", 0).add(EXIT, "main", 10)
    header: dict[str, int | bytes] = {"path": bytes(program(folder / "prog"))}
    return TraceFile([thread], header=header).write(folder / "trace")


def _run(folder: Path, *words: str) -> tuple[Result, list[str]]:
    """What came of it, and what was opened."""
    name = f"'{folder / 'browser'}' %s"
    done = ftpatch_process(*words, env={"BROWSER": name}, cwd=folder)
    noted = folder / "opened"
    return done, noted.read_text().splitlines() if noted.exists() else []


@pytest.mark.parametrize("form", ["html", "flamegraph", "json", "chrome"])
def test_a_report_is_opened(trace: Path, form: str) -> None:
    done, opened = _run(trace.parent, "report", "trace", "--format", form, "-o", "out", "--open")
    assert (done.code, done.out) == (0, "wrote out\n"), done.err
    assert opened == [(trace.parent / "out").as_uri()] and "a%20b%23c" in opened[0]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--format html", "needs an HTML or JSON report in a file; use --format html -o FILE"),
        ("--format folded -o out", "needs an HTML or JSON report in a file; use --format html -o"),
        ("-o out", "needs an HTML or JSON report in a file"),
        ("--graph main -o out", "needs an HTML or JSON report in a file"),
        ("--diff trace --json -o out", "--open and --diff conflict"),
    ],
)
def test_without_a_page_in_a_file_it_is_an_error(trace: Path, words: str, reason: str) -> None:
    done, opened = _run(trace.parent, "report", "trace", "--open", *words.split())
    assert done.code == 2 and reason in done.err and done.err.count("\n") == 1, done.err
    assert not opened and not done.out and not (trace.parent / "out").exists()


def test_without_a_browser_it_is_an_error(trace: Path) -> None:
    words = ["report", "trace", "--format", "html", "-o", "out", "--open"]
    script = "import webbrowser\nwebbrowser.register_standard_browsers = lambda: None\n"
    script += "webbrowser._tryorder = []\n"
    done = patched_process(script, *words, cwd=trace.parent)
    assert done.code == 2 and "--open finds no web browser; name one in BROWSER" in done.err
    assert not (trace.parent / "out").exists(), "it is said before anything is read"
    script += "webbrowser.register('x', None, webbrowser.GenericBrowser('false'))\n"
    done = patched_process(script, *words, cwd=trace.parent)
    assert done.code == 2 and "out: written, but no web browser started" in done.err
    assert done.err.count("\n") == 1 and (trace.parent / "out").exists()


@needs_gcc
def test_of_a_run_the_page_is_opened(trace: Path) -> None:
    folder = trace.parent
    (folder / "p.c").write_text("int main(void) { return 3; }\n")
    subprocess.run(
        ["gcc", "-O1", "-fpatchable-function-entry=5", "p.c", "-o", "p"], cwd=folder, check=True
    )
    both = ["--report", "json=a.json", "--report", "html=a.html"]
    done, opened = _run(folder, "trace", *both, "--open", "./p")
    assert done.code == 3 and not done.err and opened == [(folder / "a.html").as_uri()]
    done, opened = _run(folder, "trace", "--report", "json=b.json", "--open", "./p")
    assert done.code == 3 and opened[1:] == [(folder / "b.json").as_uri()]
    for words in ([], ["--report", "folded=x"], ["--format", "json"]):
        done, opened = _run(folder, "trace", *words, "--open", "./p")
        assert done.code == 125 and not opened[2:] and not done.out
        assert done.err == (
            "ftpatch: --open needs an HTML or JSON report in a file; use --report html=FILE\n"
        )
    done, _ = _run(folder, "trace", "--tracer", "nop", "--open", "./p")
    assert done.code == 125 and "records no events" in done.err
