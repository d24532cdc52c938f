# SPDX-License-Identifier: MIT
"""Kernels changed in the bzImage that the boot loader loads, and booted from it with KASLR."""

from __future__ import annotations

import filecmp
import re
from pathlib import Path

import pytest

from tests.support.sampling import FULL

from .cli import ftpatch
from .qemu import APPEND, END, OBJCOPY, Console, read_console, run_machine
from .trees import Tree


@pytest.fixture(scope="session")
def original(tree: Tree) -> Tree:
    """A kernel that a decompressor unpacks; by default the one whose null records are bugs."""
    if tree.arch in OBJCOPY:
        pytest.skip("an Image: test_installed.py")
    if not FULL and tree.name != "6.1-amd64":
        pytest.skip("set FTPATCH_FULL=1")
    return tree


def booted(path: Path, tree: Tree) -> Console:
    """Up to the panic, behind which x86-64 tells how far it was moved."""
    until = END if tree.arch == "i386" else "Kernel Offset: "
    return read_console(run_machine(tree.arch, path, APPEND[tree.arch], until))


@pytest.mark.parametrize("verb", ["disable", "enable"])
def test_it_boots_with_kaslr_as_before(
    original: Tree, verb: str, changed: Path, scratch: Path
) -> None:
    plain, path = booted(original.vmlinuz, original), changed
    if verb == "enable":
        path = scratch / f"{original.name}.vfs"
        report = ftpatch(
            "enable", original.vmlinuz, "-f", "vfs_*", "--strip-signature", "-o", path
        ).one
        assert report["changed"] > 50
    seen = booted(path, original)
    assert seen.reached_panic and seen.ftrace_bug is None, seen.tail
    assert seen.warnings <= plain.warnings and plain.allocating is not None
    # A kernel that is built with null records does not count them.
    counted = ftpatch("status", original.vmlinuz).one["null"] == 0
    dropped = 0 if counted else ftpatch("status", path).one["dropped"]
    assert seen.allocating == plain.allocating - dropped
    if original.arch != "i386":
        moved = re.search("Kernel Offset: (0x[0-9a-f]+) from", seen.text)
        assert moved is not None and int(moved[1], 16) > 0
    ftpatch("check", path)


def test_undo_gives_the_very_file_back(original: Tree, changed: Path, scratch: Path) -> None:
    back = scratch / f"{original.name}.back"
    ftpatch("undo", changed, "-o", back)
    assert filecmp.cmp(back, original.vmlinuz, shallow=False)
    back.unlink()


def test_a_signature_must_be_given_up(original: Tree, scratch: Path) -> None:
    refused = ftpatch("disable", original.vmlinuz, "-o", scratch / "refused", expect=2)
    assert "--strip-signature" in refused.complaint and not (scratch / "refused").exists()
