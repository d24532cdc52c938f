# SPDX-License-Identifier: MIT
"""EFI zboot images of Debian's arm64 kernels, which come as Images: the kernel's own EFI stub and
decompressor, built from its source with its own headers, around its own Image.

    src/  the headers of all architectures, and lib, libstub and libfdt of linux-source
    obj/  the headers of this one, and what is built: lib.a, and with Makefile.zboot vmlinuz.efi

They are kept in the cache beside the kernel: ``zboot/gzip.efi``, ``zboot/zstd.efi``, ...
"""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from pathlib import Path

from .apt import FetchError, files_of, folder, lock
from .built_modules import CROSS, ensure_headers
from .fetch import Kernel
from .independent import Vmlinux
from .qemu import need

__all__ = ["KERNEL", "KINDS", "ensure_zboot"]

KERNEL = "6.12-arm64"
KINDS = ("gzip", "zstd")
"""The compressions that this kernel's Makefile.zboot knows."""
LIMIT = 1800  # seconds; it takes 100, and most of it zstd -22
STUB = "drivers/firmware/efi/libstub"
TAKEN = (f"{STUB}/", "lib/", "scripts/dtc/libfdt/", "scripts/file-size.sh")
"""What the headers lack."""
# As at the end of arch/arm64/boot/Makefile; Debian's package has no vmlinux to ask for the size.
KBUILD = """EFI_ZBOOT_PAYLOAD := Image
EFI_ZBOOT_BFD_TARGET := elf64-littleaarch64
EFI_ZBOOT_MACH_TYPE := ARM64
EFI_ZBOOT_FORWARD_CFI := $(CONFIG_ARM64_BTI_KERNEL)
EFI_ZBOOT_OBJCOPY_FLAGS := --add-symbol zboot_code_size={size:#x}
include $(srctree)/drivers/firmware/efi/libstub/Makefile.zboot
always-y := vmlinuz.efi
"""


def ensure_zboot(kernel: Kernel, image: Path, kind: str) -> Path:
    """The zboot image around ``image``, compressed as KINDS says. Safe to call from several
    processes. Raises FetchError where there is no source."""
    need("aarch64-linux-gnu-gcc-12")
    need("hexdump")
    assert kernel.meta is not None
    path = kernel.path.parent / "zboot" / f"{kind}.efi"
    if not path.is_file():
        headers = ensure_headers(kernel)
        with lock(f"{kernel.meta.name}-zboot"):
            if not path.is_file():
                with tempfile.TemporaryDirectory(dir=folder(), prefix=".zboot-") as name:
                    made = _build(kernel, image, headers, kind, Path(name))
                    path.parent.mkdir(exist_ok=True)
                    made.replace(path)
    return path


def _build(kernel: Kernel, image: Path, headers: Path, kind: str, scratch: Path) -> Path:
    source, built, made = (scratch / name for name in ("src", "obj", "made"))
    _fetch_source(kernel, source)
    (common,) = headers.parent.glob("*-common")
    _link(common, source)
    _link(headers, built)
    (built / "Makefile").unlink()
    (built / "Makefile").write_text(f"include {source}/Makefile\n")
    (built / "scripts").unlink()
    for name in ("scripts", "drivers"):
        (built / name).symlink_to(source / name)
    made.mkdir()
    (made / "Image").symlink_to(image)
    vmlinux = Vmlinux(kernel.path)
    size = vmlinux.address("__inittext_end") - vmlinux.address("_text")
    (made / "Kbuild").write_text(KBUILD.format(size=size))
    config = f"CONFIG_KERNEL_{kind.upper()}"
    _make(built, source / STUB, "CONFIG_EFI_ZBOOT=y", f"CFLAGS_zboot.o=-D{config}=1")
    _make(built, made, f"{config}=y")
    return made / "vmlinuz.efi"


def _fetch_source(kernel: Kernel, where: Path) -> None:
    """The parts of linux-source that the headers lack."""
    assert kernel.meta is not None
    version = kernel.path.parent.name.partition("_")[2]
    package = "linux-source-" + kernel.name.partition("-")[0]
    kernel.meta.archive.update()
    where.mkdir()
    deb = kernel.meta.archive.download(f"{package}={version}", where)
    for name, content in files_of(deb):
        if name.endswith(".tar.xz"):
            with tarfile.open(fileobj=content, mode="r|xz") as archive:
                for member in archive:
                    _, _, inner = member.name.partition("/")
                    if inner.startswith(TAKEN):
                        member.name = inner
                        archive.extract(member, where, filter="data")
    deb.unlink()
    if not (where / STUB / "Makefile.zboot").is_file():
        raise FetchError(f"{package} has no {STUB}")


def _link(held: Path, where: Path) -> None:
    """Links to what a folder holds, and, where it has a folder that is there already, to what that
    folder holds."""
    where.mkdir(exist_ok=True)
    for one in held.iterdir():
        if (where / one.name).is_dir():
            _link(one, where / one.name)
        elif not (where / one.name).exists():
            (where / one.name).symlink_to(one)


def _make(built: Path, target: Path, *words: str) -> None:
    """Run the kernel's make on a folder, without the modules that it would end in."""
    # libfdt.h names scripts/ by way of the folder that it lies in, which is a link.
    flags = f"KCFLAGS=-I{built}/drivers/firmware"
    command: list[str | Path] = ["make", "-C", built, f"M={target}", "KBUILD_BUILTIN=1", flags]
    command += [*CROSS["arm64"], *words, target]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr[-2000:]
