# SPDX-License-Identifier: MIT
"""One version, wherever it is said."""

from __future__ import annotations

import re
import tomllib
from datetime import date

import ftpatch
from tests.support.command import ROOT
from tests.support.command import ftpatch as command


def test_it_is_the_same_everywhere() -> None:
    number = ftpatch.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", number)
    assert command("--version").out == f"ftpatch {number}\n"
    released = re.search(r"^## (\d\S*) - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released is not None and released[1] == number
    assert date.fromisoformat(released[2])
    for page in (ROOT / "man").glob("*.1"):
        assert f'"ftpatch {number}"' in page.read_text(), page


def test_what_the_index_says_of_it() -> None:
    """A version from 1 on is no beta."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    stable = "Development Status :: 5 - Production/Stable" in told
    assert stable == (int(ftpatch.__version__.partition(".")[0]) >= 1)
