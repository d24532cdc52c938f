# SPDX-License-Identifier: MIT
"""Rules of the source itself: who may import whom, who prints, who knows an architecture."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path

import pytest

from ftpatch.arch import FEATURES, arch_named, feature, supporting, supports
from ftpatch.errors import InputError
from tests.support.source_files import FILES, PACKAGE, every_file, parsed

LEVELS = (
    ("errors",),
    ("core",),
    ("layout",),
    ("io",),
    ("arch",),
    ("elf",),
    ("image",),
    ("names",),
    ("debuginfo",),
    ("ftrace",),
    ("ftrace/check",),
    ("write",),
    ("process", "kcore"),
    ("update", "diff"),
    ("inject",),
    ("trace",),
    ("tracer", "probe", "watch", "boot"),
    ("api",),
    ("cli",),
    ("__main__",),
)
"""Folders, each below those that may import it; what stands in one row may not import each other.
A sub-folder is of its parent's level unless it is named here."""
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}
HEAVY = {"keystone", "capstone", "rich", "elftools", "demangle", "google", "perfetto", "drgn"}
"""Libraries that no command should wait for before it needs them."""
ARCHITECTURES = sorted(path.parent.name for path in (PACKAGE / "arch").glob("*/ftrace.py"))
MACHINES = {*ARCHITECTURES, "i686", "aarch64", "EM_X86_64", "EM_AARCH64"}
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


def _folder(parts: Iterable[str]) -> str:
    """The longest beginning of a path that has a level; empty for the package itself."""
    found = accumulate(parts, "{}/{}".format)
    return max((name for name in found if name in LEVEL), key=len, default="")


def _own(path: Path) -> set[str]:
    """Folders of ftpatch that a file imports."""
    names = (name.split(".") for name in _imports(parsed(path)))
    return {_folder(name[1:]) for name in names if name[0] == "ftpatch"} - {""}


def test_every_part_has_a_level() -> None:
    assert {_part(path) for path in FILES} - {"__init__"} == {
        name.partition("/")[0] for name in LEVEL
    }
    assert all((PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file() for name in LEVEL)


@every_file
def test_no_import_goes_upward_or_across(path: Path) -> None:
    folder = _folder(path.relative_to(PACKAGE).with_suffix("").parts)
    if not folder:
        assert _own(path) <= {"api", "errors", "ftrace/check", "update"}  # what it offers
        return
    for name in _own(path) - {folder}:
        assert LEVEL[name] < LEVEL[folder], f"{folder} imports {name}"


@every_file
def test_only_the_command_line_prints(path: Path) -> None:
    if _part(path) == "cli":
        return
    for node in ast.walk(parsed(path)):
        name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        assert name not in ("print", "input"), f"line {getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Attribute):
            assert ast.unparse(node) not in ("sys.stdout", "sys.stderr")
    assert not {"typer", "click", "rich", "logging"} & {
        name.split(".")[0] for name in _imports(parsed(path))
    }


@every_file
def test_heavy_libraries_are_imported_where_they_are_used(path: Path) -> None:
    tree = parsed(path)
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
def test_only_its_own_folder_names_an_architecture(path: Path) -> None:
    here = path.relative_to(PACKAGE).parts[:2]
    own = here[1] if here[0] == "arch" and here[1] in ARCHITECTURES else ""
    tree = parsed(path)
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and isinstance(node.body[0], ast.Expr)
    }
    for name in _imports(tree):
        named = re.match(r"ftpatch\.arch\.(\w+)\.", name)
        assert not named or named[1] in (own, "x86") or named[1] not in ARCHITECTURES, name
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            known = id(node) in documentation or node.value not in MACHINES - {own}
            assert known, f"line {node.lineno}"
        if isinstance(node, ast.Compare):
            text = ast.unparse(node)
            numbers = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
            about = re.search(r"machine|arch\b|arch\.name\b|EM_", text)
            assert not (about and numbers & MACHINE_NUMBERS), f"line {node.lineno}: {text}"
            assert not re.search(r"arch\.name\b|\bmachine\b", text), f"line {node.lineno}: {text}"


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_folder_has_its_architectures_name_and_known_files(name: str) -> None:
    assert arch_named(name).name == name
    files = {path.stem for path in (PACKAGE / "arch" / name).glob("*.py")}
    assert files <= {"__init__", "ftrace", "encode", *FEATURES}
    for file in files & set(FEATURES):
        assert feature(name, file)
    assert supports(name, *(files & set(FEATURES)))
    absent = set(FEATURES) - files
    for file in absent:
        with pytest.raises(InputError, match=f"not supported on {name}$"):
            feature(name, file)


def test_every_feature_has_its_contract_and_someone_who_has_it() -> None:
    for name in FEATURES:
        assert (PACKAGE / "arch" / f"{name}.py").is_file(), name
        assert supporting(name), name


def test_stubs_list_no_architecture() -> None:
    text = (PACKAGE.parent / "stubs/Makefile").read_text()
    assert not [name for name in MACHINES if name in text]


@every_file
def test_files_are_short_and_say_what_is_public(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    tree = parsed(path)
    assert ast.get_docstring(tree)
    if path.name == "__main__.py" or (path.name == "__init__.py" and len(tree.body) == 1):
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
        assert re.search(
            rf"^(def |class |    |        )?{name}\b|\bimport\b.*\b{name}\b", text, re.M
        ), name


@every_file
def test_nothing_points_outside_the_project(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"/(home|root|work|Users)/\w|#\d{2,}\b|\bTODO\b|\bFIXME\b", text)
