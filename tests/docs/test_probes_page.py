# SPDX-License-Identifier: MIT
"""What docs/probes.md says of Debian's programs is tried, program by program."""

from __future__ import annotations

import re

from tests.support.doc_pages import PAGES, ROOT
from tests.support.stripped_programs import PROGRAMS

HEAD = "| program | functions |"


def test_the_programs_of_the_table_run_in_the_tests() -> None:
    page = (ROOT / "docs" / "probes.md").read_text()
    table = page.partition(HEAD)[2].partition("\n\n")[0]
    names = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)
    assert len(names) > 10 and not set(names) - PROGRAMS.keys()


def test_a_paragraph_with_a_title_begins_a_paragraph() -> None:
    for page in PAGES:
        joined = re.findall(r"^.+\n(\*\*[^*\n]+\.\*\*) ", page.read_text(), re.MULTILINE)
        assert not joined, page.name
