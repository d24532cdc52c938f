# SPDX-License-Identifier: MIT
"""The sources of ftpatch, and tests that each of them must pass."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path

import pytest

__all__ = ["FILES", "PACKAGE", "every_file", "parsed"]

PACKAGE = Path(__file__).parents[2] / "ftpatch"
FILES = sorted(PACKAGE.rglob("*.py"))
PARTS = sorted({path.relative_to(PACKAGE).parts[0] for path in FILES})


@cache
def parsed(path: Path) -> ast.Module:
    """Parse a file once for all tests; nobody changes the tree."""
    return ast.parse(path.read_text())


def every_file(test: Callable[[Path], None]) -> Callable[[str], None]:
    """Test the files of each part of the package: a case for each file would take longer to be
    told than to be tested."""

    @wraps(test)
    def of_part(part: str) -> None:
        broken = {}
        for path in FILES:
            name = path.relative_to(PACKAGE)
            if name.parts[0] != part:
                continue
            try:
                test(path)
            except AssertionError as error:
                broken[str(name)] = str(error)
        assert not broken, broken

    del of_part.__wrapped__  # pytest would see its parameter
    of_part.__annotations__ = {"part": str}
    return pytest.mark.parametrize("part", PARTS)(of_part)
