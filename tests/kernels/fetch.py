#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Debian's kernels with their symbols, through the machine's own apt configuration and no other.

Run as ``python -m tests.kernels.fetch`` it fetches what FTPATCH_KERNEL_SET names and prints
``name -> path``. The cache (`apt.folder`) holds

    <package>_<version>/vmlinux    taken out of the package, which is not kept
    <package>_<version>/image/     of the package without symbols: see trees.py
    <package>_<version>            a link to an older version, where the archive lists a package
                                   that it does not have (yet)
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

from tests.support.sampling import SEED

from .apt import DAY, Archive, FetchError, files_of, folder, lock
from .rotation import in_turn

__all__ = [
    "METAS",
    "FetchError",
    "Kernel",
    "Meta",
    "boot_packages",
    "ensure",
    "find_kernel",
    "kernels",
    "wanted",
]

SPLIT = ("binary", "modules")
SETS = ("rotation", "all", "required", "none")
UNKNOWN = "unknown"  # what a link says when apt does not know the meta package


@dataclass(frozen=True)
class Meta:
    """A meta package, and whether a machine without it is at fault."""

    name: str
    arch: str  # Debian's word
    required: bool
    suite: str = ""  # where the machine's own suite has no such architecture
    in_turn: bool = True  # else only FTPATCH_KERNEL_SET=all has it: not all tests know it yet

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
    Meta("linux-image-s390x-dbg", "s390x", required=False, suite="trixie"),
    Meta("linux-image-powerpc64le-dbg", "ppc64el", required=False, suite="trixie"),
    Meta("linux-image-armmp-dbg", "armhf", required=False, suite="trixie"),
    Meta("linux-image-loong64-dbg", "loong64", required=False, suite="sid"),
)
FLAVOURS = {
    "amd64": "amd64", "arm64": "arm64", "686": "i386", "riscv64": "riscv64", "s390x": "s390x",
    "powerpc64le": "ppc64el", "armmp": "armhf", "loong64": "loong64",
}  # fmt: skip
"""Of the packages' names, and what a kernel is called here."""
VERSIONED = re.compile(
    r"linux-image-(?P<series>\d+\.\d+)(?P<rest>[.\d]*([+~]\w+)?(-\d+)?)-(?P<flavour>.+)"
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
    which = os.environ.get("FTPATCH_KERNEL_SET", "rotation")
    if which not in SETS:
        raise FetchError(f"FTPATCH_KERNEL_SET={which}: it takes {', '.join(SETS)}")
    found: dict[str, Kernel] = {}
    for meta in wanted(which, SEED):
        if kernel := _from_apt(meta):
            found.setdefault(kernel.name, kernel)  # two metas may stand for one package
    for text in filter(None, os.environ.get("FTPATCH_KERNELS", "").split(":")):
        path = Path(text).resolve()
        if not path.is_file():
            raise FetchError(f"FTPATCH_KERNELS: no file {text}")
        name = _short(f"{path.parent.name}/{path.name}")
        found[name if name not in found else text] = Kernel(name, path)
    return list(found.values())


def wanted(which: str, seed: int) -> list[Meta]:
    """The meta packages of a set, in a rotation those of a day."""
    if which == "none":
        return []
    optional = [meta for meta in METAS if not meta.required]
    turns = in_turn([meta for meta in optional if meta.in_turn], seed)
    drawn = {"all": optional, "required": []}.get(which, turns)
    return [meta for meta in METAS if meta.required or meta in drawn]


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
    match = re.search(rf"(\d+\.\d+)[\w.+~-]*?-({'|'.join(FLAVOURS)})\b", text)
    return f"{match[1]}-{FLAVOURS[match[2]]}" if match else text.replace("/", "-")


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
    return _shown(archive, package[1])


def _download(path: Path, meta: Meta) -> None:
    """Fetch it, or the newest older one of the same series that can be had, with a link to it."""
    wanted = path.parent
    complaints = []
    names = [wanted.name, *_older(wanted.name, meta)]
    for name in sorted(names, key=lambda name: not boot_packages(meta.archive, name)):
        held = wanted.with_name(name)
        try:
            if not (held / "vmlinux").is_file():
                _fetch(held, meta)
        except FetchError as error:
            complaints.append(str(error))
            continue
        if held != wanted:
            why = complaints[0] if complaints else f"{wanted.name} has no boot image yet"
            print(f"{meta.name}: {why}; taking {name}", file=sys.stderr)
            wanted.symlink_to(name)
        _prune(keep=held)
        return
    raise FetchError("; ".join(complaints))


def _fetch(held: Path, meta: Meta) -> None:
    package, _, version = held.name.partition("_")
    with tempfile.TemporaryDirectory(dir=folder(), prefix=".download-") as scratch:
        deb = meta.archive.download(f"{package}={version}", Path(scratch))
        part = Path(scratch) / "vmlinux"
        _take_vmlinux(deb, part)
        held.mkdir(exist_ok=True)
        part.replace(held / "vmlinux")


def _older(name: str, meta: Meta) -> list[str]:
    """`<package>_<version>` of all older packages of the same series and flavour, the newest
    first."""
    package, _, _ = name.partition("_")
    own = VERSIONED.fullmatch(package)
    if own is None:
        return []
    listed = meta.archive.run("apt-cache", "pkgnames", f"linux-image-{own['series']}").split()
    found = [m for m in map(VERSIONED.fullmatch, listed) if m and m["flavour"] == own["flavour"]]
    older = [m for m in found if m["series"] == own["series"] and _number(m) < _number(own)]
    return [_shown(meta.archive, m[0]) for m in sorted(older, key=_number, reverse=True)]


def boot_packages(archive: Archive, name: str) -> list[str]:
    """The packages with the boot image and the modules of a kernel with symbols, by that one's name
    (``linux-image-...-dbg_<version>``); none where the archive has only the symbols: Debian signs
    the image later. Of 7.2 on, it is split."""
    package = name.partition("_")[0].removesuffix("-dbg")
    for packages in [[package.replace("linux-image-", f"linux-{p}-") for p in SPLIT], [package]]:
        known = archive.run("apt-cache", "pkgnames", packages[0]).split()
        if packages[0] in known and archive.run("apt-cache", "show", packages[0]).strip():
            return packages
    return []


def _number(package: re.Match[str]) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", package["rest"])]


def _shown(archive: Archive, package: str) -> str:
    """`<package>_<version>` of a package."""
    shown = archive.run("apt-cache", "show", "--no-all-versions", package)
    (version,) = re.findall(r"^Version: (\S+)$", shown, re.MULTILINE)
    return f"{package}_{version}"


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
        if old and held != keep and held.name not in linked:
            if held.is_symlink():
                held.unlink()
            else:
                shutil.rmtree(held, ignore_errors=True)


if __name__ == "__main__":
    try:
        for each in kernels():
            print(f"{each.name} -> {ensure(each)}", flush=True)
    except FetchError as failure:
        sys.exit(f"fetch: {failure}")
