# SPDX-License-Identifier: MIT
"""Kernels changed in the bzImage that the boot loader loads, and booted from it with KASLR."""

from __future__ import annotations

import filecmp
import re
from pathlib import Path

import pytest

from tests.support.sampling import FULL

from .cli import ftpatch
from .fetch import ensure, find_kernel
from .independent import PADS, Vmlinux
from .qemu import APPEND, BOXED, CRAMPED, END, STARTED, Console, read_console, run_machine
from .sitecode import skips_early
from .trees import Tree


@pytest.fixture(scope="session")
def original(tree: Tree) -> Tree:
    """A kernel that a decompressor unpacks; by default the one whose null records are bugs."""
    _skip_if_bare(tree)
    if not FULL and tree.name != "6.1-amd64":
        pytest.skip("set FTPATCH_FULL=1")
    return tree


@pytest.fixture(scope="session")
def booting(tree: Tree, request: pytest.FixtureRequest) -> Tree:
    """The same, and by default those that boot in no other form as well."""
    _skip_if_bare(tree)
    if tree.arch not in (*BOXED, *STARTED):
        request.getfixturevalue("original")
    return tree


def _skip_if_bare(tree: Tree) -> None:
    if tree.arch in PADS and tree.arch not in BOXED:
        pytest.skip("nothing unpacks it: test_installed.py")


def booted(path: Path, tree: Tree) -> Console:
    """Up to the panic, behind which x86-64 tells how far it was moved."""
    until = "Kernel Offset: " if tree.arch == "x86_64" else END
    return read_console(run_machine(tree.arch, path, APPEND[tree.arch], until))


@pytest.mark.parametrize("verb", ["disable", "enable"])
def test_it_boots_with_kaslr_as_before(
    booting: Tree, verb: str, request: pytest.FixtureRequest, scratch: Path
) -> None:
    original = booting
    if verb == "disable" and original.arch in PADS:
        pytest.skip("all its sites are NOPs as it comes")
    if verb == "disable":  # the costlier of two
        request.getfixturevalue("original")
    plain, path = booted(original.vmlinuz, original), scratch / "none"
    if verb == "disable":
        path = request.getfixturevalue("changed")
    else:
        path = scratch / f"{original.name}.vfs"
        report = ftpatch(
            "enable", original.vmlinuz, "-f", "vfs_*", "--strip-signature", "-o", path
        ).one
        assert report["changed"] > 50
    seen = booted(path, original)
    assert seen.reached_panic and seen.ftrace_bug is None, seen.tail
    assert seen.warnings <= plain.warnings and plain.allocating is not None
    skipped = skips_early(Vmlinux(ensure(find_kernel(original.name))))
    dropped = ftpatch("status", path).one["dropped"] if skipped else 0
    assert seen.allocating == plain.allocating - dropped
    if original.arch == "x86_64":
        moved = re.search("Kernel Offset: (0x[0-9a-f]+) from", seen.text)
        assert moved is not None and int(moved[1], 16) > 0
    ftpatch("check", path)
    if verb == "enable":
        ftpatch("undo", path)
        assert filecmp.cmp(path, original.vmlinuz, shallow=False)
        path.unlink()


def test_what_does_not_fit_is_refused(original: Tree, scratch: Path) -> None:
    """In one line, that says how much there is too much."""
    if original.arch not in CRAMPED:
        pytest.skip("it has room for all")
    path = scratch / "all"
    refused = ftpatch("enable", original.vmlinuz, "--strip-signature", "-o", path, expect=2)
    assert "more than there is room for in this image; select fewer" in refused.complaint
    assert refused.complaint.count("\n") == 1 and not path.exists()


def test_undo_gives_the_very_file_back(original: Tree, changed: Path, scratch: Path) -> None:
    back = scratch / f"{original.name}.back"
    ftpatch("undo", changed, "-o", back)
    assert filecmp.cmp(back, original.vmlinuz, shallow=False)
    back.unlink()


def test_a_signature_must_be_given_up(original: Tree, scratch: Path) -> None:
    if original.arch in (*BOXED, *STARTED):
        pytest.skip("Debian does not sign it")
    refused = ftpatch("disable", original.vmlinuz, "-o", scratch / "refused", expect=2)
    assert "--strip-signature" in refused.complaint and not (scratch / "refused").exists()
