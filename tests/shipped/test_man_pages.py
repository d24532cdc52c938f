# SPDX-License-Identifier: MIT
"""The manual pages: those of today's helps, as man and mandoc read them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ftpatch.cli.verbs import VERBS
from tests.support.command import ROOT, ftpatch

MAN = ROOT / "man"
PAGES = sorted(MAN.glob("*.1"))
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
needs_man = pytest.mark.skipif(not shutil.which("man"), reason="needs man")


def _shown(page: Path) -> str:
    """As man prints it, with the warnings of groff on standard error."""
    env = os.environ | {"MANWIDTH": "400", "LC_ALL": "C.UTF-8", "MAN_KEEP_FORMATTING": ""}
    words = ["man", "--warnings=all", "--nj", "--nh", "-P", "cat", "-l", str(page)]
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_they_are_those_of_the_helps(tmp_path: Path) -> None:
    """`make man` writes them again."""
    words = [sys.executable, str(ROOT / "scripts/man_pages.py"), str(tmp_path)]
    subprocess.run(words, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made == {page.name: page.read_text() for page in PAGES}
    assert set(made) == {"ftpatch.1", *(f"ftpatch-{verb}.1" for verb in VERBS)}


@needs_man
@every_page
def test_man_shows_all_that_help_says(page: Path) -> None:
    verb = page.stem.partition("-")[2]
    help_ = ftpatch(*[verb] * bool(verb), "--help").out
    shown = " ".join(_shown(page).split())
    if not verb:
        for line in help_.partition("Commands:\n")[2].splitlines():
            name, _, summary = line.strip().partition(" ")
            assert f"ftpatch-{name}(1) {summary.strip()}" in shown
        environment = shown.partition("ENVIRONMENT")[2]
        source = "".join(path.read_text() for path in (ROOT / "ftpatch/cli").rglob("*.py"))
        read = set(re.findall(r"environ(?:\.get\(|\[)\"([A-Z_]+)\"", source))
        ours = {name for name in read if not name.startswith(("COMP_", "TERM"))}
        assert {"FTPATCH_DEBUG", "PAGER", "NO_COLOR"} <= ours
        assert [name for name in sorted(ours) if name not in environment] == []
        return
    options = re.findall(r"^  (?:-\w, )?(--[\w-]+)", help_, re.MULTILINE)
    assert len(options) > 2
    assert [name for name in options if not re.search(rf"{name}[ ,]", shown)] == []
    limits = re.findall(r"\[default: [^]]+\]|\[[^][]*\bx[<>]=[^][]*\]", " ".join(help_.split()))
    assert [one for one in limits if one not in shown] == []
    assert limits or verb not in ("trace", "boot", "report", "probe")
    sentences = re.split(r"\[required\]|\n\n|\n  -\S+", help_.partition("\n\n")[2])
    summary = " ".join(sentences[0].split())
    assert f"DESCRIPTION {summary} " in shown


@every_page
def test_see_also_names_pages_that_there_are(page: Path) -> None:
    names = re.findall(r"\.BR (\S+) \(1\)", page.read_text().partition(".SH SEE ALSO")[2])
    pages = [name.replace("\\-", "-") for name in names]
    assert len(pages) > 2 and page.stem not in pages
    assert {f"{name}.1" for name in pages} <= {path.name for path in PAGES}


@pytest.mark.skipif(not shutil.which("mandoc"), reason="needs mandoc")
def test_mandoc_finds_nothing() -> None:
    """But that the pages have no date: they are those of a version."""
    words = ["mandoc", "-T", "lint", "-W", "warning", *map(str, PAGES)]
    done = subprocess.run(words, capture_output=True, text=True)
    told = (done.stdout + done.stderr).splitlines()
    assert [line for line in told if "missing date" not in line] == []
    assert len(told) == len(PAGES)
