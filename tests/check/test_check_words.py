# SPDX-License-Identifier: MIT
"""The invariants' names and words are the same wherever they stand."""

from __future__ import annotations

import re
from pathlib import Path

from ftpatch.ftrace.check.check import INVARIANTS

PAGE = Path(__file__).parent.parent.parent / "docs" / "check-in-ci.md"


def test_the_page_has_every_invariant() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    table = {name: words for name, words in rows if name in INVARIANTS}
    assert list(table) == list(INVARIANTS)
    for name, words in INVARIANTS.items():
        assert table[name].replace("`", "").startswith(words), name


def test_each_is_one_short_line() -> None:
    for name, words in INVARIANTS.items():
        assert re.fullmatch(r"[a-z_-]+", name)
        assert len(words) <= 90 and not words.endswith(".") and words.isprintable()
