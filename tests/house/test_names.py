# SPDX-License-Identifier: MIT
"""Names: of files, each of which says where a thing is, and of limits."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parent.parent.parent / "ftpatch"
BY_PLAN = {"__init__", "plan", "grammar", "read_back", "table", "tables", "events"}
"""What slices, and what they stand on, have each."""
PARTS = {"arch", "cli"}
"""Folders whose files are named after the feature that they have the architecture's part, or the
verb, of."""


def _namesakes() -> dict[str, list[Path]]:
    """Files with the same name, but for those that have it by plan."""
    found = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0] not in PARTS and path.stem not in BY_PLAN:
            found[path.stem].append(path.relative_to(PACKAGE))
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def test_no_two_files_have_the_same_name() -> None:
    assert _namesakes() == {}


def test_no_shards_in_slices_and_verbs() -> None:
    """An idea has more than a few lines; what has less belongs to the file whose idea it is."""
    folders = ("tracer", "probe", "watch", "boot", "inject", "cli")
    files = [path for folder in folders for path in (PACKAGE / folder).glob("*.py")]
    assert files
    for path in files:
        if path.stem not in BY_PLAN:
            assert len(path.read_text().splitlines()) >= 40, path.relative_to(PACKAGE)


def test_limits_say_what_they_limit() -> None:
    """MAX_SECTIONS and MIN_SHARE, in every module; not MOST or LONGEST, which are of anything."""
    superlative = {"MOST", "LONGEST", "DEEPEST", "FURTHEST", "NARROWEST", "WIDEST"}
    modules = [ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")]
    assigned = (
        part
        for tree in modules
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for part in ast.walk(node)
    )
    names = (part for part in assigned if isinstance(part, ast.Name))
    found = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    assert found >= {"MAX_SECTIONS", "MAX_NOP_SIZE"}
    assert not [name for name in found if superlative & set(name.split("_"))]
