# SPDX-License-Identifier: MIT
"""``ftpatch.Tree``: what the command line makes of the same tree, and what undo gives back."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import ftpatch
from tests.support.command import ftpatch as command
from tests.support.loose_trees import MODULES, contents, forest, plant

OPTIONS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("disable", {}, ()),
    ("disable", {"filter": "open*"}, ("-f", "open*")),
    ("enable", {"to": "my_tracer", "notrace": "open*"}, ("--to", "my_tracer", "-n", "open*")),
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return plant(tmp_path / "tree")


def test_its_modules(tree: Path) -> None:
    found = ftpatch.Tree(tree).modules
    assert {str(path.relative_to(tree)) for path in found} == {*MODULES, "kernel/untraced.ko"}
    with pytest.raises(ftpatch.InputError, match="not a directory"):
        ftpatch.Tree(tree / "first.ko")


@pytest.mark.parametrize(("verb", "options", "words"), OPTIONS)
def test_what_the_command_line_makes_of_it(
    verb: str, options: dict[str, Any], words: tuple[str, ...], tree: Path, tmp_path: Path
) -> None:
    before = contents(tree)
    output, other = tmp_path / "out", tmp_path / "other"
    done = getattr(ftpatch.Tree(tree), verb)(**options, output=output)
    told = command(verb, tree, *words, "-o", other, "--json")
    assert told.code == 0 and contents(output) == contents(other) != before == contents(tree)
    assert not done.errors and not done.refused
    assert [
        (str(path), one.changed, one.unchanged, one.dropped) for path, one in done.modules.items()
    ] == [(row["path"], row["changed"], row["unchanged"], row["dropped"]) for row in told.json]
    assert done.changed == sum(row["changed"] for row in told.json) > 0
    assert {str(path.relative_to(output)) for path in done.written} == {
        str(Path(row["output"]).relative_to(other)) for row in told.json if row["output"]
    }
    undone = ftpatch.Tree(output).undo()
    assert sorted(undone) == sorted(done.written) and contents(output) == before


def test_on_all_processors(tmp_path: Path) -> None:
    tree = forest(tmp_path / "tree", 40)
    before = contents(tree)
    done = ftpatch.Tree(tree).enable(to="my_tracer", in_place=True)
    rows = [row for path in done.modules for row in command("list", "--json", path).json]
    assert len(done.modules) == len(done.written) == 40 and {row["target"] for row in rows} == {
        "my_tracer"
    }
    assert done.selected == done.sites == done.changed
    assert ftpatch.Tree(tree).undo(dry_run=True) == done.written
    assert len(ftpatch.Tree(tree).undo(everything=True)) == 40 and contents(tree) == before


def test_one_bad_module_does_not_hide_the_others(tree: Path) -> None:
    bad = tree / "first.ko"
    bad.write_bytes(bad.read_bytes()[:200])
    done = ftpatch.Tree(tree).enable(to="my_tracer", in_place=True)
    (error,) = done.errors
    assert isinstance(error, ftpatch.InputError) and error.path == str(bad)
    assert len(done.written) == len(MODULES) - 1
    rows = command("list", "--json", tree / "kernel/sound/core/fifth.ko").json
    assert {row["target"] for row in rows} == {"my_tracer"}
    with pytest.raises(ftpatch.InputError, match=r"first\.ko"):
        ftpatch.Tree(tree).undo()
    assert "0 modules undone" in command("undo", tree).out  # the others are done


def test_what_makes_no_sense_writes_nothing(tree: Path, tmp_path: Path) -> None:
    before = contents(tree)
    opened = ftpatch.Tree(tree)
    with pytest.raises(ftpatch.UsageError, match="needs -o DIR or --in-place"):
        opened.disable()
    with pytest.raises(ftpatch.UsageError, match="matches no site of any module"):
        opened.disable("nosuch", in_place=True)
    with pytest.raises(ftpatch.UsageError, match="overlap"):
        opened.disable(output=tree / "below")
    assert opened.disable(dry_run=True).changed and not opened.disable(dry_run=True).written
    with pytest.raises(ftpatch.InputError, match="no module has a journal"):
        opened.undo()
    assert contents(tree) == before
    shutil.rmtree(tree / "kernel")
    (tree / "first.ko").unlink()
    for work in (opened.undo, lambda: opened.enable(in_place=True)):
        with pytest.raises(ftpatch.InputError, match="no modules in this directory"):
            work()
