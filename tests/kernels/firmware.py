# SPDX-License-Identifier: MIT
"""Machines that begin with firmware, and disks that it starts a kernel from: GRUB's, or with the
kernel as the only file."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from .qemu import APPEND, MACHINES, need

__all__ = [
    "CERTIFICATE",
    "STARTED",
    "UEFI",
    "efi_disk",
    "grub_disk",
    "machine",
    "root_disk",
    "run",
    "signer",
]

UEFI = {"x86_64": Path("/usr/share/OVMF"), "i386": Path("/usr/share/OVMF"),
        "arm64": Path("/usr/share/AAVMF")}  # fmt: skip
CODE = {"x86_64": "OVMF_CODE_4M{}.fd", "i386": "OVMF_CODE_4M{}.fd", "arm64": "AAVMF_CODE.fd"}
VARIABLES = {"x86_64": "OVMF_VARS_4M{}.fd", "i386": "OVMF_VARS_4M{}.fd",
             "arm64": "AAVMF_VARS{}.fd"}  # fmt: skip
STARTED = {"x86_64": "BOOTX64.EFI", "arm64": "BOOTAA64.EFI"}
"""What the firmware looks for on a disk that nothing was installed on (UEFI, "Removable Media Boot
Behavior")."""
KEYS = Path("/usr/share/ovmf")
CERTIFICATE = KEYS / "PkKek-1-snakeoil.pem"
GRUB = """serial --unit=0
terminal_input {terminal}
terminal_output {terminal}
set timeout=0
menuentry kernel {{
    linux /vmlinuz {append}
    initrd /initrd
}}
"""


def run(*words: str | Path) -> None:
    """Run a program that has to succeed."""
    subprocess.run(words, check=True, capture_output=True, timeout=300)


def grub_disk(arch: str, kernel: Path, initrd: Path, more: str, folder: Path, grub: Path) -> Path:
    """A disk, in ``folder``, whose GRUB starts a kernel at once; ``more`` follows the usual
    parameters. ``grub``: GRUB's own files where they are not the machine's; else empty."""
    for program in ("grub-mkrescue", "xorriso", "mformat"):
        need(program)
    inside, disk = folder / "inside", folder / "disk.iso"
    (inside / "boot/grub").mkdir(parents=True)
    terminal = "console" if arch == "arm64" else "serial"
    append = f"{APPEND[arch]} {more}"
    (inside / "boot/grub/grub.cfg").write_text(GRUB.format(append=append, terminal=terminal))
    shutil.copyfile(kernel, inside / "vmlinuz")
    shutil.copyfile(initrd, inside / "initrd")
    own: list[str | Path] = ["-d", grub] if grub.name else []
    run("grub-mkrescue", *own, "-o", disk, inside)
    shutil.rmtree(inside)
    return disk


def efi_disk(arch: str, kernel: Path, folder: Path) -> Path:
    """A disk, in ``folder``, that the firmware itself starts the kernel from."""
    disk = folder / "disk"
    with disk.open("wb") as file:
        os.truncate(file.fileno(), 128 << 20)
    run("mformat", "-i", disk, "-F", "::")
    run("mmd", "-i", disk, "::/EFI", "::/EFI/BOOT")
    run("mcopy", "-i", disk, kernel, f"::/EFI/BOOT/{STARTED[arch]}")
    return disk


def root_disk(init: str, busybox: Path, folder: Path) -> Path:
    """A root file system of ext4, with busybox and an init."""
    need("mke2fs")
    root, disk = folder / "root", folder / "root.img"
    for name in ("bin", "sbin", "dev", "proc", "sys", "run"):
        (root / name).mkdir(parents=True)
    (root / "sbin/init").write_text(init)
    shutil.copyfile(busybox, root / "bin/busybox")
    for program in ("sbin/init", "bin/busybox"):
        (root / program).chmod(0o755)
    run("mke2fs", "-q", "-t", "ext4", "-d", root, disk, "16M")
    shutil.rmtree(root)
    return disk


def machine(arch: str, firmware: str, folder: Path, keys: str = "") -> list[str | Path]:
    """QEMU's words for a machine with firmware, "bios" or "uefi", and variables of its own;
    ``keys``: whose kernels it starts, "snakeoil"."""
    words: list[str | Path] = [*MACHINES[arch]]
    if arch != "arm64" and keys:
        words += ["-M", "q35,smm=on", "-cpu", "max"]
        words += ["-global", "driver=cfi.pflash01,property=secure,value=on"]
    if firmware == "bios":
        return words
    dot = keys and f".{keys}"
    code, held = (UEFI[arch] / names[arch].format(dot) for names in (CODE, VARIABLES))
    for file in (code, held):
        if not file.is_file():
            need(f"the firmware {file.name}")
    variables = folder / "variables.fd"
    shutil.copyfile(held, variables)
    return [
        *words,
        *("-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={code}"),
        *("-drive", f"if=pflash,format=raw,unit=1,file={variables}"),
    ]


def signer(folder: Path) -> str:
    """A command for --sign, with the key whose certificate such a machine has."""
    for program in ("sbsign", "openssl"):
        need(program)
    key = folder / "key"
    held = KEYS / "PkKek-1-snakeoil.key"
    run("openssl", "rsa", "-in", held, "-out", key, "-passin", "pass:snakeoil")
    return f"sbsign --key {key} --cert {CERTIFICATE} --output {{}} {{}}"
