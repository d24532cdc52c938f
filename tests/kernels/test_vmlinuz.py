# SPDX-License-Identifier: MIT
"""Kernels changed in the file that the boot loader loads, and booted from it: by QEMU's own loader
with KASLR, by GRUB from BIOS and UEFI to user space, and by UEFI under Secure Boot."""

from __future__ import annotations

import filecmp
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sampling import FULL

from .cli import ftpatch
from .guest import cpio
from .qemu import APPEND, END, MACHINES, OBJCOPY, Console, need, read_console, run_machine, run_qemu
from .trees import Tree

OVMF, KEYS = Path("/usr/share/OVMF"), Path("/usr/share/ovmf")
HERE = "user space is here"
INIT = f"""#!/bin/busybox sh
/bin/busybox mkdir -p /proc
/bin/busybox mount -t proc proc /proc
/bin/busybox cat /proc/cmdline
/bin/busybox echo '{HERE}'
/bin/busybox sleep 60
"""
GRUB = """serial --unit=0
terminal_input serial
terminal_output serial
set timeout=0
menuentry kernel {{
    linux /vmlinuz {append}
    initrd /initrd
}}
"""
PC = ["-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot", "-m", "1G"]


@pytest.fixture(scope="session")
def original(tree: Tree) -> Tree:
    """A kernel that a decompressor unpacks; by default the one whose null records are bugs."""
    if tree.arch in OBJCOPY:
        pytest.skip("an Image: test_installed.py")
    if not FULL and tree.name != "6.1-amd64":
        pytest.skip("set FTPATCH_FULL=1")
    return tree


@pytest.fixture(scope="session")
def silent(original: Tree, scratch: Path) -> Iterator[Path]:
    """All sites are NOPs."""
    path = scratch / f"{original.name}.silent"
    report = ftpatch("disable", original.vmlinuz, "--strip-signature", "-o", path).one
    assert report["changed"] == report["dropped"] > 30_000
    yield path
    path.unlink()


def booted(path: Path, tree: Tree) -> Console:
    """Up to the panic, behind which x86-64 tells how far it was moved."""
    until = END if tree.arch == "i386" else "Kernel Offset: "
    return read_console(run_machine(tree.arch, path, APPEND[tree.arch], until))


@pytest.mark.parametrize("verb", ["disable", "enable"])
def test_it_boots_with_kaslr_as_before(
    original: Tree, verb: str, silent: Path, scratch: Path
) -> None:
    plain, path = booted(original.vmlinuz, original), silent
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


def test_undo_gives_the_very_file_back(original: Tree, silent: Path, scratch: Path) -> None:
    back = scratch / f"{original.name}.back"
    ftpatch("undo", silent, "-o", back)
    assert filecmp.cmp(back, original.vmlinuz, shallow=False)
    back.unlink()


def test_a_signature_must_be_given_up(original: Tree, scratch: Path) -> None:
    refused = ftpatch("disable", original.vmlinuz, "-o", scratch / "refused", expect=2)
    assert "--strip-signature" in refused.complaint and not (scratch / "refused").exists()


@pytest.mark.parametrize("firmware", ["bios", "uefi"])
def test_grub_boots_it_to_user_space(
    original: Tree, firmware: str, silent: Path, tmp_path: Path
) -> None:
    need("grub-mkrescue")
    need("xorriso")
    need("mformat")
    folder, disk = tmp_path / "disk", tmp_path / "disk.iso"
    (folder / "boot/grub").mkdir(parents=True)
    (folder / "boot/grub/grub.cfg").write_text(GRUB.format(append=APPEND[original.arch]))
    shutil.copyfile(silent, folder / "vmlinuz")
    files = {"init": INIT.encode(), "bin/busybox": original.busybox.read_bytes()}
    (folder / "initrd").write_bytes(cpio(files))
    _run("grub-mkrescue", "-o", disk, folder)
    words: list[str | Path] = [MACHINES[original.arch][0], *PC, "-cdrom", disk]
    if firmware == "uefi":
        words += _firmware("", tmp_path)
    text = run_qemu(words, HERE)
    seen = read_console(text)
    assert HERE in text and seen.ftrace_bug is None, seen.tail
    assert "BOOT_IMAGE=/vmlinuz" in text
    assert ("efi: EFI v2" in text) == (firmware == "uefi")


@pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])
def test_secure_boot_takes_what_is_signed_anew(
    original: Tree, signed: bool, silent: Path, tmp_path: Path
) -> None:
    """The firmware starts the kernel itself, as the only file of a disk, and knows Debian's
    "snakeoil" key alone."""
    if original.arch != "x86_64":
        pytest.skip("the firmware is for 64 bits")
    for program in ("sbsign", "mformat", "openssl"):
        need(program)
    path = silent
    if signed:
        path = tmp_path / "signed"
        key = tmp_path / "key"
        held = KEYS / "PkKek-1-snakeoil.key"
        _run("openssl", "rsa", "-in", held, "-out", key, "-passin", "pass:snakeoil")
        sign = f"sbsign --key {key} --cert {KEYS / 'PkKek-1-snakeoil.pem'} --output {{}} {{}}"
        ftpatch("disable", original.vmlinuz, "-f", "vfs_*", "--sign", sign, "-o", path)
        _run("sbverify", "--cert", KEYS / "PkKek-1-snakeoil.pem", path)
        assert ftpatch("status", path).one["dropped"] > 50
    disk = tmp_path / "disk"
    with disk.open("wb") as file:
        os.truncate(file.fileno(), 64 << 20)
    _run("mformat", "-i", disk, "-F", "::")
    _run("mmd", "-i", disk, "::/EFI", "::/EFI/BOOT")
    _run("mcopy", "-i", disk, path, "::/EFI/BOOT/BOOTX64.EFI")
    words: list[str | Path] = [MACHINES[original.arch][0], "-M", "q35,smm=on", "-cpu", "max", *PC]
    words += [*_firmware(".snakeoil", tmp_path), "-drive", f"format=raw,file={disk}"]
    words += ["-global", "driver=cfi.pflash01,property=secure,value=on"]
    started = "EFI stub: UEFI Secure Boot is enabled"
    text = run_qemu(words, started if signed else "Access Denied", limit=120)
    assert (started in text) == signed and ("Access Denied" in text) != signed, text[-2000:]


def _run(*words: str | Path) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=300)


def _firmware(kind: str, folder: Path) -> list[str | Path]:
    """QEMU's words for UEFI, with variables of its own."""
    code, held = OVMF / f"OVMF_CODE_4M{kind}.fd", OVMF / f"OVMF_VARS_4M{kind}.fd"
    for file in (code, held):
        if not file.is_file():
            need(f"{file.name} of the package ovmf")
    variables = folder / "variables.fd"
    shutil.copyfile(held, variables)
    return [
        *("-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={code}"),
        *("-drive", f"if=pflash,format=raw,unit=1,file={variables}"),
    ]
