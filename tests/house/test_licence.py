# SPDX-License-Identifier: MIT
"""Every source file says its licence, in the line where tools look for it."""

from __future__ import annotations

import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
IDENTIFIER = "SPDX-License-Identifier: MIT"
COMMENTS = {
    "*.y*ml": f"# {IDENTIFIER}",
    "*.py": f"# {IDENTIFIER}",
    "*.sh": f"# {IDENTIFIER}",
    "*.mk": f"# {IDENTIFIER}",
    "*Makefile": f"# {IDENTIFIER}",
    ".ci/run": f"# {IDENTIFIER}",
    "*.c": f"// {IDENTIFIER}",
    "*.cpp": f"// {IDENTIFIER}",
    "*.h": f"/* {IDENTIFIER} */",
    "*.S": f"/* {IDENTIFIER} */",
    "*.lds": f"/* {IDENTIFIER} */",
    "*.css": f"/* {IDENTIFIER} */",
    "*.js": f"// {IDENTIFIER}",
    "*.html": f"<!-- {IDENTIFIER} -->",
}
"""The line as each kind of file has it; C and assembly as in the Linux kernel."""
MADE = ("samples/built/", "stubs/built/", "tests/golden/")
"""What is no source."""


def _comment(name: str) -> str:
    return next((line for pattern, line in COMMENTS.items() if fnmatch(name, pattern)), "")


def _sources() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    names = listed.stdout.splitlines()
    return [n for n in names if not n.startswith(MADE) and _comment(n) and (ROOT / n).is_file()]


def _says(text: str, comment: str) -> bool:
    """Whether the first line, or the one after ``#!``, is this comment."""
    lines = text.splitlines()
    return lines[1 if lines and lines[0].startswith("#!") else 0 :][:1] == [comment]


def test_every_source_has_its_line() -> None:
    sources = _sources()
    if not sources:
        pytest.skip("not a clone of the repository")
    assert len(sources) > 500
    assert [n for n in sources if not _says((ROOT / n).read_text(), _comment(n))] == []


def test_a_line_elsewhere_is_none() -> None:
    comment = COMMENTS["*.py"]
    assert _says(f"{comment}\nx = 1\n", comment)
    assert _says(f"#!/usr/bin/env python3\n{comment}\n", comment)
    for text in ("", "x = 1\n", f"x = 1\n{comment}\n", f"{comment}-0\n", f"#!x\n\n{comment}"):
        assert not _says(text, comment)


def test_the_text_is_the_one_that_the_lines_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == IDENTIFIER.partition(": ")[2]
    (name,) = project["license-files"]
    text = (ROOT / name).read_text()
    assert text.startswith("MIT License\n") and "the ftpatch contributors" in text
