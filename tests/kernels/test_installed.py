# SPDX-License-Identifier: MIT
"""Kernels as they are installed: read as the vmlinux with symbols is, patched, and booted.

x86's kernel is extracted from its bzImage (test_vmlinuz.py has it patched in there); the others'
are Images, and ppc64le's is a vmlinux: these are patched as they are. What is in IBM Z's bzImage
and in a zImage does not boot without its decompressor.
"""

from __future__ import annotations

import filecmp
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from . import fetch
from .cli import ftpatch, read_check
from .independent import PADS
from .ipl import memory_of
from .qemu import APPEND, BOXED, END, OBJCOPY, STARTED, Console, read_console, run_machine
from .trees import Tree

CONTAINERS = dict.fromkeys((*OBJCOPY, "loongarch64"), "Image") | {
    "s390x": "bzImage (IPL)",
    "ppc64le": "vmlinux",
    "arm": "zImage",
}
"""What is in /boot."""
HEADLESS = (*BOXED, *STARTED)
"""What is inside is the kernel's memory, without an ELF file's headers."""


@dataclass(frozen=True)
class Installed:
    """A kernel in the form that a boot loader takes, a copy of it that can be changed, and the
    vmlinux of the same version."""

    tree: Tree
    path: Path
    plain: Path
    symbols: Path

    @property
    def container(self) -> str:
        return CONTAINERS.get(self.tree.arch, "bzImage")

    @property
    def boxed(self) -> bool:
        """Whether there is something to extract."""
        with self.path.open("rb") as file:
            head = file.read(8)[4:]
        return self.container.startswith(("bzImage", "zImage")) or head == b"zimg"


@pytest.fixture(scope="session")
def installed(tree: Tree, scratch: Path) -> Iterator[Installed]:
    kernel = fetch.find_kernel(tree.name)
    path, plain = (scratch / f"{tree.name}.{name}" for name in ("vmlinuz", "plain"))
    shutil.copyfile(tree.vmlinuz, path)
    made = Installed(tree, path, plain, fetch.ensure(kernel))
    if made.boxed:
        ftpatch("extract", path, "-o", plain)
    else:
        shutil.copyfile(path, plain)
    yield made
    path.unlink()
    plain.unlink()


@cache
def _listed(path: Path) -> list[dict[str, Any]]:
    rows = ftpatch("list", path).objects
    for row in rows:
        del row["offset"]  # another file has it elsewhere
    return rows


def _booted(arch: str, path: Path, kaslr: bool) -> Console:
    append = APPEND[arch] + ("" if kaslr else " nokaslr")
    return read_console(run_machine(arch, path, append, END))


def test_status(installed: Installed) -> None:
    one, other = (ftpatch("status", path).one for path in (installed.path, installed.symbols))
    assert one.pop("path") == str(installed.path) and other.pop("path")
    assert one.pop("container") == installed.container and other.pop("container") == "vmlinux"
    assert one == other and one["sites"] > 30000
    if installed.tree.arch in HEADLESS:
        inside = ftpatch("status", installed.plain).one
        assert inside.pop("path") == str(installed.plain) and inside.pop("container") == "vmlinux"
        assert inside == other


def test_sites(installed: Installed) -> None:
    """Address, name, state and callee of each."""
    one, other = _listed(installed.path), _listed(installed.symbols)
    # Without KALLSYMS_ALL that name alone stays of what stands there: scripts/kallsyms.c.
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if a["symbol"] != "_etext"]
    assert len(pairs) >= len(one) - 1
    wrong = [(a, b) for a, b in pairs if a != b]
    assert not wrong, f"{len(wrong)} sites: {wrong[:3]}"


def test_check(installed: Installed) -> None:
    said = [read_check(path) for path in (installed.path, installed.symbols)]
    assert not said[0].findings and not said[1].findings
    texts = [found.text.replace(str(path), "") for found, path in zip(
        said, (installed.path, installed.symbols), strict=True)]  # fmt: skip
    assert texts[0] == texts[1] and "no ftrace bug" in texts[0]


def test_extracted(installed: Installed, scratch: Path) -> None:
    """Byte for byte what is inside; and what is not boxed is said to be so."""
    arch = installed.tree.arch
    if arch in HEADLESS:
        memory = memory_of(installed.symbols, arch, scratch)
        assert b"".join(_loaded(installed.plain)) == memory
    else:
        assert filecmp.cmp(installed.plain, installed.tree.kernel, shallow=False)
    refused = ftpatch("extract", installed.plain, expect=2)
    assert "nothing to extract" in refused.complaint


def _loaded(path: Path) -> Iterator[bytes]:
    """What is in memory, from the first segment's start to the last one's end."""
    with path.open("rb") as file:
        before = 0
        for segment in ELFFile(file).iter_segments("PT_LOAD"):
            yield bytes(segment["p_vaddr"] - before if before else 0) + segment.data()
            before = segment["p_vaddr"] + segment["p_filesz"]


def test_boots_and_undone(installed: Installed) -> None:
    """All sites changed, in two commands: on x86 NOPs, and calls in vfs_*; elsewhere calls, and
    NOPs in vfs_*."""
    arch, path = installed.tree.arch, installed.plain
    if arch in HEADLESS:
        pytest.skip("what is in there does not boot by itself: test_vmlinuz.py")
    pads = arch in PADS
    verbs = ("enable", "disable") if pads else ("disable", "enable")
    few = sum(row["symbol"].startswith("vfs_") for row in _listed(path))
    first = ftpatch(verbs[0], "--in-place", "--strip-signature", path).one
    second = ftpatch(verbs[1], "--in-place", path, "-f", "vfs_*").one
    sites = len(_listed(installed.path))
    assert (first["changed"], first["failed"]) == (sites, [])
    assert 50 < second["changed"] == few and second["failed"] == []
    calls = sites - few if pads else few
    row = ftpatch("status", path).one
    assert row["states"] == {"nop": sites - calls, "call": calls, "unexpected": 0}
    assert row["targets"] == {"ftrace_caller": calls}
    foretold = read_check(path)
    assert not foretold.findings
    untouched = installed.tree.kernel
    kaslr = arch == "arm64"
    before, seen = (_booted(arch, image, kaslr) for image in (untouched, path))
    assert before.reached_panic and seen.reached_panic, seen.tail
    assert seen.ftrace_bug is None, seen.ftrace_bug
    assert seen.warnings <= before.warnings, seen.warnings - before.warnings
    # Whether a kernel counts null records shows in its table, if that came with some.
    dropped = 0 if ftpatch("status", installed.path).one["null"] else row["dropped"]
    assert seen.allocating in (_count(foretold.text), _count(foretold.text) - dropped)
    assert ("KASLR enabled" in seen.text) == kaslr
    ftpatch("undo", "--all", path)
    assert filecmp.cmp(path, untouched, shallow=False)


def _count(text: str) -> int:
    found = re.search(r"ftrace: allocating (\d+) entries, no ftrace bug", text)
    assert found is not None, text
    return int(found[1])
