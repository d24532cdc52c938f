# SPDX-License-Identifier: MIT
"""Changed kernels as machines start them: by GRUB, from BIOS and UEFI, and by UEFI itself, to user
space, with the distribution's own initramfs (i386: with busybox); and under Secure Boot."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.sampling import FULL

from . import fetch, firmware
from .apt import FetchError, files_of, folder, lock
from .cli import ftpatch
from .guest import cpio
from .initramfs import ensure_initramfs
from .qemu import APPEND, need, read_console, run_qemu
from .trees import Tree

HERE = "user space is here"
INIT = f"""#!/bin/busybox sh
/bin/busybox mkdir -p /proc
/bin/busybox mount -t proc proc /proc
/bin/busybox cat /proc/cmdline
/bin/busybox echo modules: $(/bin/busybox wc -l </proc/modules)
/bin/busybox echo '{HERE}'
/bin/busybox sleep 60
"""
PATIENCE = 600
"""Seconds for firmware, GRUB and all of Debian's initramfs on a busy machine."""
KERNELS = {"6.1-amd64", "6.1-arm64"}
LISTED = {"x86_64": (), "arm64": ("virtio_blk", "virtio_pci", "ext4")}
"""Architectures with the distribution's initramfs, and its modules: most, or a few, where the tool
and the kernel that unpacks it run under emulation."""
SCSI = ["-device", "virtio-scsi-pci", "-device", "scsi-cd,drive=disk", "-drive"]


@pytest.fixture(scope="session")
def started(tree: Tree) -> Tree:
    """A kernel that there is firmware for."""
    if tree.arch not in firmware.UEFI:
        pytest.skip("no firmware for it")
    if not FULL and tree.name not in KERNELS:
        pytest.skip("set FTPATCH_FULL=1")
    return tree


def _initrd(tree: Tree, tmp_path: Path) -> tuple[Path, str]:
    """An initramfs, and the parameters that it needs: the distribution's, or one of busybox."""
    if tree.arch in LISTED:
        need("qemu-aarch64-static" if tree.arch == "arm64" else "mkinitramfs")
        kernel = fetch.find_kernel(tree.name)
        return ensure_initramfs(kernel, *LISTED[tree.arch]), "root=/dev/vda ro"
    path = tmp_path / "initrd"
    path.write_bytes(cpio({"init": INIT.encode(), "bin/busybox": tree.busybox.read_bytes()}))
    return path, ""


def grub_files(tree: Tree) -> Path:
    """GRUB's files for an architecture that has none on this machine."""
    if tree.arch != "arm64":
        return Path()
    kernel = fetch.find_kernel(tree.name)
    assert kernel.meta is not None
    archive = kernel.meta.archive
    path = folder() / archive.name / "grub"
    with lock(f"{archive.name}-grub"):
        if not path.is_dir():
            archive.update()
            part = path.with_name("grub.part")
            part.mkdir(exist_ok=True)
            for held in part.iterdir():
                held.unlink()
            deb = archive.download("grub-efi-arm64-bin", part)
            for name, content in files_of(deb):
                if "/lib/grub/arm64-efi/" in name:
                    (part / Path(name).name).write_bytes(content.read())
            deb.unlink()
            part.replace(path)
    return path


@pytest.mark.parametrize("kind", ["bios", "uefi"])
def test_grub_boots_it_to_user_space(
    started: Tree, kind: str, changed: Path, tmp_path: Path
) -> None:
    if kind == "bios" and started.arch == "arm64":
        pytest.skip("it has no BIOS")
    try:
        initrd, more = _initrd(started, tmp_path)
        disk = firmware.grub_disk(
            started.arch, changed, initrd, more, tmp_path, grub_files(started)
        )
    except FetchError as error:
        pytest.skip(str(error))
    words = firmware.machine(started.arch, kind, tmp_path)
    if started.arch == "arm64":
        words += [*SCSI, f"if=none,id=disk,format=raw,readonly=on,file={disk}"]
    else:
        words += ["-cdrom", disk]
    text = _assert_starts(started, words, more, tmp_path)
    assert "BOOT_IMAGE=/vmlinuz" in text
    assert ("efi: EFI v2" in text) == (kind == "uefi")


def test_uefi_boots_what_a_filter_changed(started: Tree, tmp_path: Path) -> None:
    """QEMU gives the firmware the kernel and its initramfs."""
    if started.arch != "arm64":
        pytest.skip("a bzImage: test_vmlinuz.py")
    path = tmp_path / "vfs"
    given: list[str | Path] = [started.vmlinuz, "-f", "vfs_*", "--strip-signature", "-o", path]
    assert ftpatch("enable", *given).one["changed"] > 50
    try:
        initrd, more = _initrd(started, tmp_path)
    except FetchError as error:
        pytest.skip(str(error))
    words = firmware.machine(started.arch, "uefi", tmp_path)
    words += ["-kernel", path, "-initrd", initrd, "-append", f"{APPEND[started.arch]} {more}"]
    assert "efi: EFI v2" in _assert_starts(started, words, more, tmp_path)


def _assert_starts(tree: Tree, words: list[str | Path], more: str, tmp_path: Path) -> str:
    """Boot a machine to user space, silently; what its console said."""
    if more:
        root = firmware.root_disk(INIT, tree.busybox, tmp_path)
        words += ["-drive", f"if=virtio,format=raw,file={root}"]
    text = run_qemu(words, HERE, limit=PATIENCE)
    seen = read_console(text)
    assert HERE in text and seen.ftrace_bug is None, seen.tail
    assert not seen.warnings, seen.warnings
    assert tree.arch != "arm64" or "KASLR enabled" in text
    if more:  # the disk and its file system are modules, ftrace's records in each
        counted = re.search(r"modules: (\d+)", text)
        assert counted is not None and int(counted[1]) > 5
    return text


@pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])
def test_secure_boot_takes_what_is_signed_anew(
    started: Tree, signed: bool, changed: Path, tmp_path: Path
) -> None:
    """The firmware starts the kernel itself, as the only file of a disk, and knows Debian's
    "snakeoil" key alone."""
    arch = started.arch
    if arch not in firmware.STARTED:
        pytest.skip("the firmware is for 64 bits")
    for program in ("sbverify", "mformat"):
        need(program)
    path = changed
    if signed:
        path = tmp_path / "signed"
        verb = "enable" if arch == "arm64" else "disable"
        sign = firmware.signer(tmp_path)
        ftpatch(verb, started.vmlinuz, "-f", "vfs_*", "--sign", sign, "-o", path)
        firmware.run("sbverify", "--cert", firmware.CERTIFICATE, path)
        assert ftpatch("status", path).one["dropped"] > 50
    disk = firmware.efi_disk(arch, path, tmp_path)
    words = firmware.machine(arch, "uefi", tmp_path, "snakeoil")
    words += ["-drive", f"format=raw,file={disk}" + (",if=virtio" if arch == "arm64" else "")]
    word = "EFI stub: UEFI Secure Boot is enabled"
    text = run_qemu(words, word if signed else "Access Denied", limit=120)
    assert (word in text) == signed and ("Access Denied" in text) != signed, text[-2000:]
