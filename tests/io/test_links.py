# SPDX-License-Identifier: MIT
"""Hard links: a new file takes the place of one name, and that is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.loose_trees import forest
from tests.support.samples import sample

Copied = Callable[[str], Path]
VERBS = {
    "enable": ["enable", "FILE", "--in-place"],
    "disable": ["disable", "FILE", "--in-place", "--json", "-q"],
    "undo": ["undo", "FILE"],
    "probe": ["probe", "FILE", "p:x main", "--in-place"],
    "watch": ["watch", "FILE", "__dso_handle:rw-", "--in-place"],
    "force": ["enable", "OTHER", "-o", "FILE", "--force"],
}


@pytest.mark.parametrize("names", [1, 2, 4])
@pytest.mark.parametrize("verb", VERBS)
def test_it_is_said(verb: str, names: int, copy_of: Copied) -> None:
    path = copy_of("fentry" if verb == "disable" else "pad")
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    if verb == "undo":
        assert ftpatch("enable", path, "--in-place").code == 0
    before = path.read_bytes()
    links = [path.with_name(f"link{i}") for i in range(1, names)]
    for link in links:
        link.hardlink_to(path)
    words = [word.replace("FILE", str(path)).replace("OTHER", str(other)) for word in VERBS[verb]]
    result = ftpatch(*words, "--dry-run")
    assert result.code == 0 and "hard links" not in result.err
    result = ftpatch(*words)
    assert result.code == 0
    rest = {1: "", 2: "the other keeps", 4: "the 3 others keep"}[names]
    line = f"ftpatch: {path}: it had {names} hard links; {rest} the old contents\n"
    assert result.err.count("hard links") == (names > 1) and (names == 1 or line in result.err)
    assert all(link.read_bytes() == before for link in links) and path.read_bytes() != before


def test_a_new_file_has_one_name(copy_of: Copied) -> None:
    path = copy_of("pad")
    path.with_name("link").hardlink_to(path)
    assert ftpatch("enable", path).err == ""
    assert path.stat().st_nlink == 2 and path.read_bytes() == sample("pad").data


@pytest.mark.parametrize("command", ["disable", "undo"])
def test_trees(command: str, tmp_path: Path) -> None:
    """As those of snapshots: the others keep what they were."""
    tree = forest(tmp_path / "tree", 24)
    if command == "undo":
        assert ftpatch("disable", tree, "--in-place").code == 0
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    linked = sorted(tree.rglob("*.ko"))[:5]
    before = {}
    for path in linked:
        (snapshot / path.name).hardlink_to(path)
        before[path.name] = path.read_bytes()
    words: list[str | Path] = [command, tree, *(["--in-place"] if command == "disable" else [])]
    assert "hard links" not in ftpatch(*words, "--dry-run").err
    result = ftpatch(*words)
    number = sum(path.read_bytes() != before[path.name] for path in linked)
    assert number and result.err == (
        f"ftpatch: {tree}: {number} modules had hard links; "
        "each file written is now separate from them\n"
    )
    assert {path.name: path.read_bytes() for path in snapshot.iterdir()} == before
    assert ftpatch("disable", tree, "-o", tmp_path / "out", "-f", "*").err == ""
