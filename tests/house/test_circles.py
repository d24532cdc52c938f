# SPDX-License-Identifier: MIT
"""No circles: modules of ftpatch do not import each other, headers do not include each other."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
STUBS = ROOT / "stubs"
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
Graph = Mapping[str, set[str]]


def _circles(graph: Graph) -> list[list[str]]:
    """The groups of nodes that reach each other, and nodes that lead to themselves."""
    reach = {start: _reached(graph, start) for start in graph}
    groups = {
        frozenset(to for to in found if start in reach[to])
        for start, found in reach.items()
        if start in found
    }
    return sorted(sorted(group) for group in groups)


def _reached(graph: Graph, start: str) -> set[str]:
    found, pending = set[str](), [start]
    while pending:
        for to in graph[pending.pop()] - found:
            found.add(to)
            pending.append(to)
    return found


def _modules(package: Path) -> dict[str, Path]:
    out = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        out[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return out


def _imports(package: Path) -> Graph:
    """What each module imports, also inside functions and for types alone: a name that is needed
    in both directions belongs below both. A package stands for its __init__.py."""
    modules = _modules(package)
    graph = {}
    for name, path in modules.items():
        wanted = set[str]()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                wanted |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                inside = {f"{node.module}.{alias.name}" for alias in node.names}
                wanted |= (inside & modules.keys()) or {node.module or ""}
        graph[name] = wanted & modules.keys()
    return graph


def _includes(folder: Path) -> Graph:
    """What each C file needs by its includes: a source and its header are one."""
    graph = dict[str, set[str]]()
    for path in sorted(folder.glob("*.[ch]")):
        wanted = {Path(text).stem for text in INCLUDE.findall(path.read_text())}
        graph.setdefault(path.stem, set()).update(wanted - {path.stem})
    return {name: wanted & graph.keys() for name, wanted in graph.items()}


def test_no_modules_import_each_other() -> None:
    graph = _imports(ROOT / "ftpatch")
    assert len(graph) > 200
    assert graph["ftpatch.write.write"] >= {"ftpatch.core.changes", "ftpatch.image"}
    assert _circles(graph) == []


def test_no_parts_of_the_runtime_include_each_other() -> None:
    graph = _includes(STUBS / "runtime")
    assert len(graph) > 20
    assert graph["file"] >= {"text", "threads"}
    assert _circles(graph) == []


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"d"}, "e": {"a"}}
    assert _circles(graph) == [["a", "b", "c"], ["d"]]
