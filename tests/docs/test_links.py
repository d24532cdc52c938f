# SPDX-License-Identifier: MIT
"""What the documents point at is there: pages, headings, files, make's targets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.doc_pages import PAGES, ROOT, blocks, inline_code

READMES = [ROOT / name / "README.md" for name in ("samples", "stubs", "tests/kernels")]
every_page = pytest.mark.parametrize(
    "page", [*PAGES, *READMES], ids=lambda page: str(page.relative_to(ROOT))
)
FOLDERS = ("ftpatch", "stubs", "samples", "tests", "bench", "docs")
TEST_NAME = re.compile(r"`(test_\w+\*?)`")


def _text(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def _anchors(page: Path) -> set[str]:
    """What GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", _text(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", _text(page)):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        assert other.is_file(), f"{page.name}: {target}"
        assert not anchor or anchor in _anchors(other), f"{page.name}: {target}"


@every_page
def test_named_files_exist(page: Path) -> None:
    for span in inline_code(page):
        if re.fullmatch(rf"(?:{'|'.join(FOLDERS)})/[\w./*-]*", span):
            assert any(ROOT.glob(span.rstrip("/"))), f"{page.name}: {span}"
    for name in TEST_NAME.findall(_text(page)):
        assert any((ROOT / "tests").rglob(f"{name}.py")), f"{page.name}: {name}"


@every_page
def test_make_has_the_targets(page: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    lines = [line for block in blocks(page) for line in block.text.splitlines()]
    for line in [*lines, *inline_code(page)]:
        if found := re.match(r"(?:\$ )?make ([a-z][\w-]*)", line):
            assert found[1] in targets, f"{page.name}: {line}"


def test_readme_is_short_and_leads_to_every_page() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 250
    linked = set(re.findall(r"\(docs/([\w-]+\.md)", text))
    assert linked == {page.name for page in (ROOT / "docs").glob("*.md")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_are_short(page: Path) -> None:
    """Lines of tables are as long as they have to be."""
    for number, line in enumerate(_text(page).splitlines(), 1):
        assert len(line) <= 110 or line.startswith("|"), f"{page.name}: {number}"
