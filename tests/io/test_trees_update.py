# SPDX-License-Identifier: MIT
"""enable, disable and undo on trees: each module as if alone, and a tree that mirrors the first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.loose_trees import MODULES, UNPACK, contents, plant

CALLING = [place for place, form in MODULES.items() if form in ("x86_64", "i386")]
PADS = [place for place in MODULES if place not in CALLING]
COMMANDS = (
    ["disable"],
    ["disable", "-f", "read_it", "-f", "set_up"],
    ["disable", "-f", "*:mod:f*"],
    ["enable", "--to", "printk", "-n", "once"],
    ["enable", "--to", "my_tracer"],
    ["disable", "--keep-records", "-f", "open_it"],
)
every_command = pytest.mark.parametrize("command", COMMANDS, ids=" ".join)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return plant(tmp_path / "tree")


def _alone(path: Path, command: list[str]) -> bytes:
    """What a command makes of one module; its own bytes where the filters leave nothing."""
    output = path.with_name("alone")
    result = ftpatch(*command, path, "-o", output)
    if result.code == 2 and ("matches no site" in result.err or "no __mcount_loc" in result.err):
        return path.read_bytes()
    assert result.code == 0, result
    data = output.read_bytes()
    output.unlink()
    return data


@every_command
def test_each_as_if_it_were_alone(command: list[str], tree: Path) -> None:
    before = contents(tree)
    expected = {
        place: ("file", _alone(tree / place, command)) for place in (*MODULES, "kernel/untraced.ko")
    }
    output = tree.parent / "output"
    result = ftpatch(*command, tree, "-o", output)
    assert result.code == 0, result
    assert contents(output) == before | expected
    assert contents(tree) == before, "the input is only read"
    assert ftpatch(*command, tree, "--in-place").code == 0
    assert contents(tree) == before | expected
    changed = [place for place in MODULES if before[place] != expected[place]]
    assert changed
    number = f"{len(changed)} module" + "s" * (len(changed) > 1)
    assert result.out.endswith(f"wrote {number} into {output}\n")
    assert ftpatch("undo", tree).code == 0
    for place in MODULES:
        held = UNPACK[Path(place).suffix]
        (_, was), now = before[place], (tree / place).read_bytes()
        assert isinstance(was, bytes) and held(now) == held(was)


@every_command
def test_twice_changes_nothing(command: list[str], tree: Path) -> None:
    assert ftpatch(*command, tree, "--in-place").code == 0
    once = contents(tree)
    times = {path: path.stat().st_mtime_ns for path in tree.rglob("*.ko*") if path.exists()}
    result = ftpatch(*command, tree, "--in-place", "--json")
    assert result.code == 0
    assert {(row["changed"], row["dropped"], row["output"]) for row in result.json} == {
        (0, 0, None)
    }
    assert contents(tree) == once
    assert {path: path.stat().st_mtime_ns for path in times} == times, "not even written anew"


def test_the_lines_of_json(tree: Path) -> None:
    """One for each module with a table, in the order of status."""
    output = tree.parent / "output"
    rows = ftpatch("disable", "--json", tree, "-o", output, "-f", "*_it").json
    assert [Path(row["path"]).relative_to(tree) for row in rows] == [
        Path(row["path"]).relative_to(tree)
        for row in ftpatch("status", "--json", tree).json
        if row["table"]
    ]
    for row in rows:
        place = str(Path(row["path"]).relative_to(tree))
        changes = place in CALLING
        assert row == {
            "path": str(tree / place),
            "output": str(output / place) if changes else None,
            "changed": 4 * changes,
            "unchanged": 4 * (not changes),
            "dropped": 4 * changes,
            "restored": 0,
            "failed": [],
        }


def test_what_is_kept_of_other_files(tree: Path) -> None:
    output = tree.parent / "output"
    assert ftpatch("disable", tree, "-o", output).code == 0
    held = (output / "modules.dep").stat()
    assert held.st_mode & 0o777 == 0o640 and held.st_mtime == 1_600_000_000
    (tree / CALLING[0]).chmod(0o604)
    assert ftpatch("disable", tree, "-o", output, "--force").code == 0
    assert (output / CALLING[0]).stat().st_mode & 0o777 == 0o604


def test_other_names_of_a_module_in_place(tree: Path) -> None:
    """A module that stays as it is stays the same file; one that changes is a new one."""
    for place in (CALLING[0], PADS[0]):
        os.link(tree / place, tree.parent / Path(place).name)
    assert ftpatch("disable", tree, "--in-place").code == 0
    assert (tree / PADS[0]).samefile(tree.parent / Path(PADS[0]).name)
    assert not (tree / CALLING[0]).samefile(tree.parent / Path(CALLING[0]).name)


def test_a_dry_run(tree: Path) -> None:
    before = contents(tree)
    output = tree.parent / "output"
    for way in (["-o", str(output)], ["--in-place"]):
        result = ftpatch("disable", "--dry-run", tree, *way)
        assert result.code == 0 and result.out.endswith("dry run: nothing was written\n")
        assert "18 changed" in result.out
    assert contents(tree) == before and not output.exists()


@pytest.mark.parametrize(
    ("filters", "changed"),
    [
        (["open_it:mod:first"], 1),
        (["*:mod:second", "once:mod:first"], 7),
        (["*:mod:*th"], 6),
        (["!*_it"], 6),
        (["set_up", "nosuch_but_the_others_are", "!nosuch_but_the_others_are"], 0),
    ],
)
def test_filters(filters: list[str], changed: int, tree: Path) -> None:
    """A filter must match in one of the modules, not in each."""
    options = [word for text in filters for word in ("-f", text)]
    result = ftpatch("disable", tree, "--in-place", "--json", *options)
    if any("nosuch" in text for text in filters):
        assert result.code == 2 and "matches no site of any module" in result.err
        assert not result.out, "nothing was written"
        return
    assert result.code == 0
    assert sum(row["changed"] for row in result.json) == changed


def test_a_file_of_filters(tree: Path) -> None:
    names = tree.parent / "names"
    names.write_text("# two\nopen_it\nread_it:mod:first\n")
    rows = ftpatch("disable", tree, "--in-place", "--json", "-f", f"@{names}").json
    assert sum(row["changed"] for row in rows) == 3 + 1
    result = ftpatch("disable", tree, "--in-place", "-f", "@/nonexistent")
    assert result.code == 2 and "cannot read the filter file" in result.err


@pytest.mark.parametrize("text", ["nosuch", "*:mod:nosuch", "open_it:mod:sixth", "0xfffffff0"])
def test_a_filter_that_matches_nowhere(text: str, tree: Path) -> None:
    before = contents(tree)
    result = ftpatch("disable", tree, "--in-place", "-f", text)
    assert result.code == 2
    assert f"{tree}: filter {text!r} matches no site of any module" in result.err
    assert contents(tree) == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("opne_it", "; did you mean open_it"),
        ("!opne_it:mod:*", "; did you mean open_it"),
        ("open_it:mod:sixth", "any module\n"),
        ("qqqqqqqq", "any module\n"),
    ],
)
def test_what_a_filter_was_perhaps_meant_to_be(text: str, said: str, tree: Path) -> None:
    result = ftpatch("disable", tree, "--in-place", "-f", text)
    assert result.code == 2 and said in result.err


def test_filters_that_leave_nothing(tree: Path) -> None:
    """Each matches, and together they choose no site: that is no error of a tree."""
    result = ftpatch("disable", tree, "--in-place", "--json", "-f", "open_it", "-n", "open_it")
    assert result.code == 0 and {row["changed"] for row in result.json} == {0}


def test_undo_of_a_tree(tree: Path) -> None:
    before = contents(tree)
    for command in (["disable", "-f", "open_it"], ["enable", "--to", "new_one", "-f", "*_it"]):
        assert ftpatch(*command, tree, "--in-place").code == 0
    rows = ftpatch("undo", "--json", tree).json
    assert len(rows) == len(MODULES), "the second command changed every module"
    rows = ftpatch("undo", "--json", tree).json
    assert {Path(row["output"]).relative_to(tree) for row in rows} == set(map(Path, CALLING))
    result = ftpatch("undo", tree)
    assert result.code == 2 and "no module has a journal" in result.err
    for place in MODULES:
        held = UNPACK[Path(place).suffix]
        was = before[place][1]
        assert isinstance(was, bytes) and held((tree / place).read_bytes()) == held(was)


@pytest.mark.parametrize("verb", [["disable"], ["enable", "--to", "printk"]])
def test_a_signed_one_among_others(verb: list[str], tmp_path: Path) -> None:
    place = CALLING[1]
    tree = plant(tmp_path / "tree", sign=place)
    before = contents(tree)
    result = ftpatch(*verb, tree, "--in-place")
    assert result.code == 2 and f"{tree / place}: the module is signed" in result.err
    after = contents(tree)
    assert after[place] == before[place] and after[CALLING[0]] != before[CALLING[0]]
    assert ftpatch(*verb, tree, "--in-place", "--strip-signature").code == 0
    assert contents(tree)[place] != before[place]
