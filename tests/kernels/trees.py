# SPDX-License-Identifier: MIT
"""A kernel as it is installed: its boot image, a few modules, a busybox of its architecture."""

from __future__ import annotations

import lzma
import shutil
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path

import zstandard

from .apt import Archive, FetchError, files_of, folder, lock
from .fetch import Kernel, boot_packages

__all__ = ["ARCHES", "MODULES", "Tree", "busybox", "ensure_tree"]

MODULES = ("dummy", "veth", "brd", "ifb")
"""None of them needs another, nor a device."""
ARCHES = {"amd64": "x86_64", "ppc64el": "ppc64le", "armhf": "arm", "loong64": "loongarch64"}
"""ftpatch's words for Debian's, where they differ."""


@dataclass(frozen=True)
class Tree:
    """A kernel's files."""

    name: str  # "6.1-amd64"
    arch: str  # ftpatch's word
    kernel: Path  # the vmlinux of a bzImage, or the Image
    vmlinuz: Path  # as it is installed
    modules: dict[str, Path]  # dummy.ko or dummy.ko.xz
    busybox: Path

    def module(self, name: str) -> bytes:
        """A module as the loader gets it, without compression."""
        path = self.modules[name]
        data = path.read_bytes()
        return lzma.decompress(data) if path.suffix == ".xz" else data


def ensure_tree(kernel: Kernel) -> Tree:
    """Fetch what belongs to a kernel with symbols. Safe to call from several processes."""
    if kernel.problem or kernel.meta is None:
        raise FetchError(kernel.problem or "a file, whose modules nobody knows")
    archive = kernel.meta.archive
    where = kernel.path.parent / "image"
    with lock(kernel.meta.name):
        package = kernel.path.parent.resolve().name.partition("_")[0].removesuffix("-dbg")
        if not where.is_dir():
            _download(archive, package, where)
        elif not (where / "vmlinuz").is_file():  # by an earlier version of this
            _download(archive, package, where.with_name("image.part"))
            (where.with_name("image.part") / "vmlinuz").replace(where / "vmlinuz")
            shutil.rmtree(where.with_name("image.part"))
    held = {path.name.partition(".")[0]: path for path in where.glob("*.ko*")}
    arch = ARCHES.get(archive.arch, archive.arch)
    return Tree(kernel.name, arch, where / "kernel", where / "vmlinuz", held, busybox(archive))


def _download(archive: Archive, package: str, where: Path) -> None:
    archive.update()
    where.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder(), prefix=".download-") as scratch:
        part = Path(scratch) / "image"
        part.mkdir()
        for source in boot_packages(archive, package) or [package]:
            fetched = Path(scratch) / source
            fetched.mkdir()
            _take(archive.download(source, fetched), part)
        shutil.copyfile(part / "vmlinuz", part / "kernel")
        _unpack(part / "kernel")
        if len(list(part.iterdir())) != 2 + len(MODULES):
            raise FetchError(f"{package} holds no kernel with {', '.join(MODULES)}")
        part.replace(where)


def _take(deb: Path, part: Path) -> None:
    """Take the boot image and the modules of a package."""
    for name, content in files_of(deb):
        file = Path(name)
        module = ".ko" in file.suffixes and file.name.partition(".")[0] in MODULES
        kernel = file.name.startswith("vmlinu")
        if module or kernel:
            with (part / ("vmlinuz" if kernel else file.name)).open("wb") as out:
                shutil.copyfileobj(content, out, 1 << 20)


def _unpack(kernel: Path) -> None:
    """Leave of a zboot image the Image in it, and of a bzImage the vmlinux in it, which QEMU boots
    without unpacking it under emulation
    (Documentation/arch/x86/boot.rst: setup_sects, payload_offset, payload_length)."""
    data = kernel.read_bytes()
    if data[4:8] == b"zimg" and data[0x18:0x1C] == b"zstd":  # see ftpatch/image/containers/zboot.py
        start, length = struct.unpack_from("<II", data, 8)
        stream = zstandard.ZstdDecompressor().decompressobj()
        kernel.write_bytes(stream.decompress(data[start : start + length]))
        return
    if data[0x202:0x206] != b"HdrS":
        return
    start = (data[0x1F1] + 1) * 512 + int.from_bytes(data[0x248:0x24C], "little")
    length = int.from_bytes(data[0x24C:0x250], "little")
    size = int.from_bytes(data[start + length - 4 : start + length], "little")
    packed = data[start : start + length - 4]
    if packed.startswith(b"\xfd7zXZ"):
        kernel.write_bytes(lzma.decompress(packed))
    elif packed.startswith(b"\x28\xb5\x2f\xfd"):
        kernel.write_bytes(zstandard.ZstdDecompressor().decompress(packed, size))


def busybox(archive: Archive) -> Path:
    """busybox-static of an architecture."""
    path = folder() / archive.name / "busybox"
    with lock(f"{archive.name}-busybox"):
        if not path.is_file():
            archive.update()
            with tempfile.TemporaryDirectory(dir=folder(), prefix=".download-") as scratch:
                deb = archive.download("busybox-static", Path(scratch))
                for name, content in files_of(deb):
                    if Path(name).name == "busybox" and Path(name).parent.name == "bin":
                        part = Path(scratch) / "busybox"
                        part.write_bytes(content.read())
                        part.replace(path)
                        break
                else:
                    raise FetchError(f"{deb.name} holds no busybox")
    return path
