# SPDX-License-Identifier: MIT
"""Arguments by keyword: nobody counts to seven."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.source_files import every_file, parsed

MAX_POSITIONAL = 6
ROWS = {"struct.pack", "struct.pack_into", "np.stack", "np.concatenate", "print"}
"""Calls whose arguments are a row of equals."""


def _calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or len(node.args) <= MAX_POSITIONAL:
            continue
        name = ast.unparse(node.func)
        if name in ROWS or name.rpartition(".")[2] in ("pack", "pack_into"):
            continue
        yield f"line {node.lineno}: {name}() gets {len(node.args)} positional arguments"


def _functions(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        names = [one.arg for one in (*node.args.posonlyargs, *node.args.args)]
        named = [name for name in names if name not in ("self", "cls")]
        # A verb's parameters are its options: the command line gives them by name.
        if len(named) > MAX_POSITIONAL and not _is_verb(node):
            yield f"line {node.lineno}: {node.name}() takes {len(named)} positional parameters"


def _is_verb(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return node.name == "command"


@every_file
def test_at_most_six_positional(path: Path) -> None:
    tree = parsed(path)
    assert [*_calls(tree), *_functions(tree)] == []


def test_seven_are_found() -> None:
    tree = ast.parse("def f(a, b, c, d, e, g, h): ...\nf(1, 2, 3, 4, 5, 6, 7)\n")
    assert len(list(_calls(tree))) == len(list(_functions(tree))) == 1
    fine = ast.parse("def f(a, b, c, d, e, g, *, h): ...\nstruct.pack('6B', 1, 2, 3, 4, 5, 6)\n")
    assert [*_calls(fine), *_functions(fine)] == []
