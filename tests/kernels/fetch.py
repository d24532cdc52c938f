#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Debian's kernels with their symbols, through the machine's own apt configuration and no other.

Run as ``python -m tests.kernels.fetch`` it fetches what FTPATCH_KERNEL_SET names and prints
``name -> path``. The cache (`apt.folder`) holds

    <package>_<version>/vmlinux    taken out of the package, which is not kept
    <package>_<version>/image/     of the package without symbols: see trees.py
    <meta package>                 a link to the above; its own mtime says when apt was last asked
    apt-<architecture>[-<suite>]/  apt's lists, apart from the system's
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from .apt import DAY, Archive, FetchError, files_of, folder, lock

__all__ = ["FetchError", "Kernel", "Meta", "ensure", "find_kernel", "kernels"]

UNKNOWN = "unknown"  # what a link says when apt does not know the meta package


@dataclass(frozen=True)
class Meta:
    """A meta package, and whether a machine without it is at fault."""

    name: str
    arch: str  # Debian's word
    required: bool
    suite: str = ""  # where the machine's own suite has no such architecture

    @property
    def archive(self) -> Archive:
        return Archive(self.arch, self.suite)


METAS = (
    Meta("linux-image-amd64-dbg", "amd64", required=True),
    Meta("linux-image-arm64-dbg", "arm64", required=True),
    Meta("linux-image-6.12-amd64-dbg", "amd64", required=False),
    Meta("linux-image-6.12-arm64-dbg", "arm64", required=False),
    Meta("linux-image-686-pae-dbg", "i386", required=False),
    Meta("linux-image-riscv64-dbg", "riscv64", required=False, suite="trixie"),
    Meta("linux-image-loong64-dbg", "loong64", required=False, suite="sid"),
)


@dataclass(frozen=True)
class Kernel:
    """A kernel to test: where it is or will be (see `ensure`), or why it cannot be had."""

    name: str  # "6.1-amd64"
    path: Path
    meta: Meta | None = None  # None: a file that FTPATCH_KERNELS names
    problem: str = ""

    @property
    def required(self) -> bool:
        return self.meta is None or self.meta.required


def kernels() -> list[Kernel]:
    """The kernels that the environment asks for. Asks apt at most once a day; downloads nothing."""
    which = os.environ.get("FTPATCH_KERNEL_SET", "all")
    if which not in ("all", "required", "none"):
        raise FetchError(f"FTPATCH_KERNEL_SET={which}: it takes all, required or none")
    found: dict[str, Kernel] = {}
    for meta in METAS:
        wanted = which == "all" or (which == "required" and meta.required)
        if wanted and (kernel := _from_apt(meta)):
            found.setdefault(kernel.name, kernel)  # two metas may stand for one package
    for text in filter(None, os.environ.get("FTPATCH_KERNELS", "").split(":")):
        path = Path(text).resolve()
        if not path.is_file():
            raise FetchError(f"FTPATCH_KERNELS: no file {text}")
        name = _short(f"{path.parent.name}/{path.name}")
        found[name if name not in found else text] = Kernel(name, path)
    return list(found.values())


def find_kernel(key: str | Path) -> Kernel:
    """The kernel with this name, or whose vmlinux this is."""
    return next(kernel for kernel in kernels() if key in (kernel.name, kernel.path))


def ensure(kernel: Kernel) -> Path:
    """The vmlinux; downloaded if it is not there yet. Safe to call from several processes."""
    if kernel.problem:
        raise FetchError(kernel.problem)
    if kernel.meta is None or kernel.path.is_file():
        return kernel.path
    with lock(kernel.meta.name):
        if not kernel.path.is_file():
            _download(kernel.path, kernel.meta)
    return kernel.path


def _short(text: str) -> str:
    """`6.1-amd64` out of `linux-image-6.1.0-56-amd64-dbg`; other names stay as they are."""
    match = re.search(r"(\d+\.\d+)[\w.+~-]*?-(amd64|arm64|686|riscv64|loong64)\b", text)
    return f"{match[1]}-{match[2].replace('686', 'i386')}" if match else text.replace("/", "-")


def _from_apt(meta: Meta) -> Kernel | None:
    """The kernel behind a meta package; None where apt does not know one that is not required."""
    link = folder() / meta.name
    problem = ""
    with lock(meta.name):
        if not link.is_symlink() or time.time() - link.lstat().st_mtime > DAY:
            try:
                target = _resolve(meta)
                link.unlink(missing_ok=True)
                link.symlink_to(target)
            except FetchError as error:
                problem = str(error)
    target = str(link.readlink()) if link.is_symlink() else UNKNOWN
    path = folder() / target / "vmlinux"
    if target == UNKNOWN:
        problem = problem or (f"apt does not know {meta.name}" if meta.required else "")
        return Kernel(meta.name, path, meta, problem) if problem else None
    if problem and path.is_file():  # offline, say: yesterday's kernel is as good
        print(f"{meta.name}: {problem}; taking the cached {target}", file=sys.stderr)
        problem = ""
    return Kernel(_short(target), path, meta, problem)


def _resolve(meta: Meta) -> str:
    """`<package>_<version>` that a meta package stands for today, or `UNKNOWN`."""
    archive = meta.archive
    complaint = archive.update()
    try:
        depends = archive.run("apt-cache", "depends", meta.name)
    except FetchError as error:  # no such package: so it is, or the lists are not here
        if complaint:
            raise FetchError(f"{error}; before that, {complaint}") from error
        return UNKNOWN
    package = re.search(r"^ *Depends: (linux-image-\S+-dbg)$", depends, re.MULTILINE)
    if package is None:
        return UNKNOWN
    shown = archive.run("apt-cache", "show", "--no-all-versions", package[1])
    (version,) = re.findall(r"^Version: (\S+)$", shown, re.MULTILINE)
    return f"{package[1]}_{version}"


def _download(path: Path, meta: Meta) -> None:
    package, _, version = path.parent.name.partition("_")
    path.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder(), prefix=".download-") as scratch:
        deb = meta.archive.download(f"{package}={version}", Path(scratch))
        part = Path(scratch) / "vmlinux"
        _take_vmlinux(deb, part)
        part.replace(path)
    _prune(keep=path.parent)


def _take_vmlinux(deb: Path, part: Path) -> None:
    """The vmlinux is the package's first file: dpkg-deb is stopped there, 4 GB before its end."""
    for name, content in files_of(deb):
        if Path(name).name.startswith("vmlinux"):
            with part.open("wb") as out:
                shutil.copyfileobj(content, out, 1 << 20)
            return
    raise FetchError(f"{deb.name} holds no vmlinux")


def _prune(keep: Path) -> None:
    """Remove the kernels that no link names any more: they have some 500 MB each."""
    linked = {str(link.readlink()) for link in folder().iterdir() if link.is_symlink()}
    for held in folder().glob("linux-image-*_*"):
        old = time.time() - held.lstat().st_mtime > DAY
        if old and held != keep and held.name not in linked and not held.is_symlink():
            shutil.rmtree(held, ignore_errors=True)


if __name__ == "__main__":
    try:
        for each in kernels():
            print(f"{each.name} -> {ensure(each)}", flush=True)
    except FetchError as failure:
        sys.exit(f"fetch: {failure}")
