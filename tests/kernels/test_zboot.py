# SPDX-License-Identifier: MIT
"""EFI zboot images, which Debian has of no architecture here: the kernels' own decompressor around
its Images, changed, and started by UEFI and by GRUB, with KASLR, to user space."""

from __future__ import annotations

import filecmp
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.sampling import FULL, SEED

from . import fetch, firmware
from .apt import FetchError
from .cli import ftpatch, read_check
from .guest import cpio
from .qemu import APPEND, read_console, run_qemu
from .test_firmware import HERE, INIT, SCSI, grub_files
from .trees import Tree, ensure_tree
from .zboot import KERNEL, KINDS, ensure_zboot

DAYS = 4
"""It is built, from the kernel's source, on one day of so many."""


@dataclass(frozen=True)
class Boxed:
    """A zboot image, and the files of its kernel."""

    tree: Tree
    path: Path
    kind: str


@pytest.fixture(scope="module", params=KINDS)
def boxed(request: pytest.FixtureRequest) -> Boxed:
    """One on some days, of one compression after the other; in full, each."""
    kind = request.param
    turn, other = divmod(SEED, DAYS)
    if not FULL and (other or kind != KINDS[turn % len(KINDS)]):
        pytest.skip("not in this sample: set FTPATCH_FULL=1")
    kernel = next((one for one in fetch.kernels() if one.name == KERNEL), None)
    if kernel is None:
        pytest.skip(f"without {KERNEL}")
    try:
        fetch.ensure(kernel)
        tree = ensure_tree(kernel)
        return Boxed(tree, ensure_zboot(kernel, tree.vmlinuz, kind), kind)
    except FetchError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def all_enabled(boxed: Boxed, scratch: Path) -> Iterator[Path]:
    """All sites are calls, and those of vfs_* NOPs again: a journal of two commands."""
    path = scratch / f"{boxed.tree.name}.{boxed.kind}.all"
    report = ftpatch("enable", boxed.path, "-o", path).one
    with path.open("rb") as file:
        assert file.read(8) == b"MZ\0\0zimg"
    assert report["changed"] > 30_000 and not report["failed"]
    if boxed.kind != "zstd":  # -22 takes a minute
        again = ftpatch("disable", "--in-place", path, "-f", "vfs_*").one
        assert again["changed"] > 50 and not again["failed"]
    yield path
    path.unlink()


def _assert_boots(boxed: Boxed, path: Path, tmp_path: Path, *, grub: bool = False) -> None:
    tree = boxed.tree
    initrd = tmp_path / "initrd"
    initrd.write_bytes(cpio({"init": INIT.encode(), "bin/busybox": tree.busybox.read_bytes()}))
    words = firmware.machine(tree.arch, "uefi", tmp_path)
    words += ["-device", "virtio-rng-pci"]  # the stub chooses by it where to unpack to
    if grub:
        disk = firmware.grub_disk(tree.arch, path, initrd, "", tmp_path, grub_files(tree))
        words += [*SCSI, f"if=none,id=disk,format=raw,readonly=on,file={disk}"]
    else:
        words += ["-kernel", path, "-initrd", initrd, "-append", APPEND[tree.arch]]
    text = run_qemu(words, HERE)
    seen = read_console(text)
    assert HERE in text and seen.ftrace_bug is None, seen.tail
    assert not seen.warnings, seen.warnings
    assert "KASLR enabled" in text
    assert ("BOOT_IMAGE=/vmlinuz" in text) == grub
    foretold, status = read_check(path), ftpatch("status", path).one
    count = re.search(r"ftrace: allocating (\d+) entries, no ftrace bug", foretold.text)
    assert not foretold.findings and count is not None
    # Whether a kernel counts null records shows in its table, if that came with some.
    dropped = 0 if status["null"] else status["dropped"]
    assert seen.allocating in (int(count[1]), int(count[1]) - dropped)


def test_it_boots_as_it_was_built(boxed: Boxed, tmp_path: Path) -> None:
    _assert_boots(boxed, boxed.path, tmp_path)


def test_it_boots_with_some_enabled(boxed: Boxed, tmp_path: Path) -> None:
    if boxed.kind == "zstd":
        pytest.skip("-22 takes a minute: once is enough")
    path = tmp_path / "vfs"
    report = ftpatch("enable", boxed.path, "-f", "vfs_*", "-o", path).one
    assert report["changed"] > 50 and not report["failed"]
    _assert_boots(boxed, path, tmp_path)


def test_grub_boots_it_with_all_enabled(boxed: Boxed, all_enabled: Path, tmp_path: Path) -> None:
    states = ftpatch("status", all_enabled).one["states"]
    assert states["call"] > 30_000 and states["unexpected"] == 0
    assert (states["nop"] > 50) == (boxed.kind != "zstd")
    _assert_boots(boxed, all_enabled, tmp_path, grub=True)


def test_undo_gives_the_very_file_back(boxed: Boxed, all_enabled: Path, tmp_path: Path) -> None:
    back = tmp_path / "back"
    ftpatch("undo", "--all", all_enabled, "-o", back)
    assert filecmp.cmp(back, boxed.path, shallow=False)
