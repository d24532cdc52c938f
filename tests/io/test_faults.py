# SPDX-License-Identifier: MIT
"""A mapped input that becomes shorter while it is read: one line and exit 2, not "Bus error"."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import (
    PATIENCE,
    Result,
    child_env,
    ftpatch,
    ftpatch_command,
    patched_process,
)
from tests.support.loose_trees import contents, forest
from tests.support.samples import sample
from tests.support.sampling import scaled

Copied = Callable[[str], Path]
KERNEL, PROGRAM = "vmlinux-x86_64", "pad"
VERBS = {
    "status": (KERNEL, ["status", "FILE"]),
    "list": (KERNEL, ["list", "FILE"]),
    "check": (KERNEL, ["check", "FILE"]),
    "baseline": (KERNEL, ["check", "FILE", "--write-baseline", "FILE.known"]),
    "enable": (KERNEL, ["enable", "FILE"]),
    "in-place": (KERNEL, ["enable", "FILE", "--in-place"]),
    "disable": (KERNEL, ["disable", "FILE", "--force"]),
    "undo": (KERNEL, ["undo", "FILE"]),
    "diff": (KERNEL, ["diff", "FILE", "FILE.other"]),
    "diff-other": (KERNEL, ["diff", "FILE.other", "FILE"]),
    "extract": (KERNEL, ["extract", "FILE"]),
    "tracer": (PROGRAM, ["enable", "FILE", "--tracer", "function"]),
    "probe": (PROGRAM, ["probe", "FILE", "p:x main"]),
    "watch": (PROGRAM, ["watch", "FILE", "calls:rw-"]),
    "trace": (PROGRAM, ["trace", "FILE"]),
}
CUT = """
import os, sys
import ftpatch.elf.elf_file as elf
import ftpatch.cli.extract
elf.SMALL = 0
read, cut = elf.read_skeleton, []
def read_and_cut(path, data):
    if path == FILE and not cut:
        cut.append(os.truncate(FILE, 4096))
    return read(path, data)
elf.read_skeleton = read_and_cut
"""
CUT_EARLY = """
import ftpatch.image.prefetch
import ftpatch.cli.extract
elf.map_file, map_file = lambda path: (map_file(path), os.truncate(FILE, 0))[0], elf.map_file
"""


def _run(path: Path, command: list[str], script: str) -> Result:
    words = [word.replace("FILE", str(path)) for word in command]
    return patched_process(f"FILE = {str(path)!r}\n{script}", *words, cwd=path.parent)


@pytest.mark.parametrize("verb", VERBS)
def test_an_input_that_becomes_shorter(verb: str, copy_of: Copied) -> None:
    name, command = VERBS[verb]
    path = copy_of(name)
    if verb == "undo":
        assert ftpatch("enable", path, "--in-place").code == 0
    other = path.with_name(name + ".other")
    other.write_bytes(path.read_bytes())
    before = {p.name for p in path.parent.iterdir()}
    result = _run(path, command, CUT + (CUT_EARLY if verb == "extract" else ""))
    assert result.code == (125 if verb == "trace" else 2), result
    assert result.err == f"ftpatch: {path}: the file changed while it was being read; try again\n"
    assert {p.name for p in path.parent.iterdir()} == before


def test_one_of_many(tmp_path: Path) -> None:
    """Of trees the others are done: their files are read, not mapped."""
    tree = forest(tmp_path / "tree", 40)
    other = forest(tmp_path / "other", 40)
    bad = sorted(tree.rglob("*.ko"))[20]
    for processors in ("{0}", "{0, 1}"):
        forest(tree, 40) if not tree.exists() else None
        script = CUT.replace("4096", "64") + f"os.sched_getaffinity = lambda _: {processors}\n"
        result = _run(bad, ["disable", str(tree), "-o", str(tmp_path / f"out{processors}")], script)
        assert result.code == 2 and result.err.count("\n") == 1
        assert result.err.startswith(f"ftpatch: {bad}: ")
        assert ftpatch("disable", other, "-o", tmp_path / f"whole{processors}").code == 0
        whole, found = (contents(tmp_path / f"{name}{processors}") for name in ("whole", "out"))
        assert found.items() <= whole.items() and len(found) == len(whole) - 1
        bad.write_bytes((other / bad.relative_to(tree)).read_bytes())


def test_a_signal_from_elsewhere(copy_of: Copied) -> None:
    """What is said is so: nothing changed the file."""
    path = copy_of(KERNEL)
    script = CUT.replace("os.truncate(FILE, 4096)", "os.kill(os.getpid(), 7)")
    result = _run(path, ["status", "FILE"], script)
    assert result.code == 2 and result.err.count("\n") == 1
    assert f"{path}: SIGBUS, although the file has not changed" in result.err


@pytest.mark.scaled
@pytest.mark.parametrize("verb", ["status", "check", "enable", "diff"])
def test_at_any_moment(verb: str, tmp_path: Path) -> None:
    """A file that is really large, cut after a random time."""
    path, other = tmp_path / "vmlinux", tmp_path / "other"
    chance = random.Random(verb)
    codes = set()
    for _ in range(scaled(12, 2)):
        for each in (path, other):
            each.write_bytes(sample(KERNEL).data)
            os.truncate(each, 80 << 20)
        command = [verb, str(path)] + ([str(other)] if verb == "diff" else [])
        process = subprocess.Popen(
            ftpatch_command(*command),
            env=child_env(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(chance.random())
        os.truncate(path, chance.choice([0, 100, 4096, 20_000]))
        out, err = process.communicate(timeout=PATIENCE)
        codes.add(process.returncode)
        assert process.returncode in (0, 1, 2), err
        assert "Traceback" not in err and "internal" not in err
        assert (process.returncode == 2) == (err.count("\n") == 1), (out, err)
        for left in tmp_path.glob("*.ftpatch"):
            assert left.stat().st_size >= 80 << 20
            left.unlink()
        assert {p.name for p in tmp_path.iterdir()} == {"vmlinux", "other"}
