"""Rules of the source itself: who may import whom, who prints, who knows an architecture."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent.parent / "ftpatch"
FILES = sorted(PACKAGE.rglob("*.py"))
LEVELS = (
    ("errors",),
    ("core",),
    ("io",),
    ("arch",),
    ("elf",),
    ("image",),
    ("names",),
    ("ftrace",),
    ("write",),
    ("update", "diff"),
    ("inject",),
    ("trace",),
    ("tracer", "probe", "watch", "boot"),
    ("cli",),
    ("__main__",),
)
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}
HEAVY = {"keystone", "capstone", "rich", "elftools", "demangle", "google", "perfetto"}
"""Libraries that no command should wait for before it needs them."""
MACHINES = {"x86_64", "i386", "i686", "arm64", "aarch64", "riscv64", "EM_X86_64", "EM_AARCH64"}
MACHINE_NUMBERS = {3, 62, 183, 243}


def _part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(tree: ast.AST) -> Iterator[str]:
    """Full names of the modules that a file imports anywhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the layer"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _own(path: Path) -> set[str]:
    """Top-level parts of ftpatch that a file imports."""
    names = (name.split(".") for name in _imports(ast.parse(path.read_text())))
    return {name[1] for name in names if name[0] == "ftpatch" and len(name) > 1}


def _id(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


every_file = pytest.mark.parametrize("path", FILES, ids=_id)


def test_every_part_has_a_level() -> None:
    assert {_part(path) for path in FILES} - {"__init__"} == set(LEVEL)


@every_file
def test_no_import_goes_upward(path: Path) -> None:
    part = _part(path)
    if part == "__init__":
        assert not _own(path)
        return
    for name in _own(path) - {part, "__version__"}:
        assert LEVEL[name] <= LEVEL[part], f"{part} imports {name}"
        if {name, part} == {"elf", "arch"}:
            pytest.fail(f"{part} imports its neighbour {name}")


@every_file
def test_only_the_command_line_prints(path: Path) -> None:
    if _part(path) == "cli":
        return
    for node in ast.walk(ast.parse(path.read_text())):
        name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        assert name not in ("print", "input"), f"line {getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Attribute):
            assert ast.unparse(node) not in ("sys.stdout", "sys.stderr")
    assert not {"typer", "click", "rich", "logging"} & {
        name.split(".")[0] for name in _imports(ast.parse(path.read_text()))
    }


@every_file
def test_heavy_libraries_are_imported_where_they_are_used(path: Path) -> None:
    tree = ast.parse(path.read_text())
    # Everything that runs on import: module level, also inside if and try, but no function.
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = {name.split(".")[0] for name in _imports(node)}
            assert not names & HEAVY, f"line {node.lineno}"
        pending += ast.iter_child_nodes(node)


@every_file
def test_only_arch_knows_architectures(path: Path) -> None:
    if _part(path) == "arch":
        return
    tree = ast.parse(path.read_text())
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert id(node) in documentation or node.value not in MACHINES, f"line {node.lineno}"
        if isinstance(node, ast.Compare):
            text = ast.unparse(node)
            numbers = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
            about = re.search(r"machine|arch\b|arch\.name|EM_", text)
            assert not (about and numbers & MACHINE_NUMBERS), f"line {node.lineno}: {text}"
            assert not re.search(r"arch\.name|\bmachine\b", text), f"line {node.lineno}: {text}"


@every_file
def test_files_are_short_and_say_what_is_public(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    tree = ast.parse(text)
    assert ast.get_docstring(tree)
    if path.name == "__main__.py" or len(tree.body) == 1:  # a package that only has a docstring
        return
    named = next(
        (
            ast.literal_eval(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        ),
        None,
    )
    assert named, "no __all__"
    for name in named:
        assert re.search(rf"^(def |class |    )?{name}\b|\bimport\b.*\b{name}\b", text, re.M), name


@every_file
def test_nothing_points_outside_the_project(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"/(home|root|work|Users)/\w|#\d{2,}\b|\bTODO\b|\bFIXME\b", text)
