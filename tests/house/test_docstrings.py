# SPDX-License-Identifier: MIT
"""Docstrings say what a name does or is: an imperative or a noun, not a question."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.source_files import every_file

QUESTION = re.compile(r"(what|which|where|whether|how|when|who|whose|why)\b", re.IGNORECASE)
END = re.compile(r"\.\)?$|:$")
"""Of a summary; a colon leads to a list or a drawing."""


def _docstrings(body: Sequence[ast.stmt]) -> Iterator[tuple[str, int, str]]:
    """Name, line and docstring of each public name, and of attributes the string below them."""
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if node.name.startswith("_") and not node.name.startswith("__"):
                continue
            text = ast.get_docstring(node)
            if text is not None:
                yield node.name, node.lineno, text
            if isinstance(node, ast.ClassDef):
                yield from _docstrings(node.body)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(after, ast.Expr):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            value = after.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                name = ast.unparse(target)
                if not name.startswith("_"):
                    yield name, node.lineno, value.value


def _broken(source: str) -> list[str]:
    """The docstrings that break a rule, a line each."""
    tree = ast.parse(source)
    module = ast.get_docstring(tree) or ""
    broken = []
    for name, line, text in [("the module", 1, module), *_docstrings(tree.body)]:
        summary = " ".join(text.split("\n\n")[0].split())
        if QUESTION.match(summary) or not END.search(summary):
            broken.append(f"line {line}: {name}: {summary}")
    return broken


@every_file
def test_docstrings_are_imperatives_or_nouns(path: Path) -> None:
    assert not _broken(path.read_text())


@pytest.mark.parametrize(
    "source",
    [
        '"""What it is."""',
        '"""Module."""\ndef name() -> None:\n    """Whether it is."""',
        '"""Module."""\nclass Name:\n    """Name"""',
        '"""Module."""\nclass Name:\n    value = 1\n    """How many there are."""',
    ],
)
def test_questions_are_found(source: str) -> None:
    assert len(_broken(source)) == 1
