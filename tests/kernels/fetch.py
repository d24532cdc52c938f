#!/usr/bin/env python3
"""Debian's kernels with their symbols, through the machine's own apt configuration and no other.

Run as a program it fetches what FTPATCH_KERNEL_SET names and prints ``name -> path``.

The cache is ``$XDG_CACHE_HOME`` (or ``~/.cache``) ``/ftpatch/kernels``:

    <package>_<version>/vmlinux    taken out of the package, which is not kept
    <meta package>                 a link to the above; its own mtime says when apt was last asked
    apt-<architecture>/            apt's lists for that architecture, apart from the system's

This file imports nothing from its neighbours, so that it runs as a plain script.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["FetchError", "Kernel", "ensure", "kernels"]

DAY = 24 * 3600  # seconds
STEP = 1800  # seconds that one apt command may take: the packages have up to 1 GB
C = os.environ | {"LC_ALL": "C"}  # apt's words are read below
UNKNOWN = "unknown"  # what a link says when apt does not know the meta package


@dataclass(frozen=True)
class Meta:
    """A meta package, and whether a machine without it is at fault."""

    name: str
    arch: str  # Debian's word
    required: bool


METAS = (
    Meta("linux-image-amd64-dbg", "amd64", required=True),
    Meta("linux-image-arm64-dbg", "arm64", required=True),
    Meta("linux-image-6.12-amd64-dbg", "amd64", required=False),
    Meta("linux-image-6.12-arm64-dbg", "arm64", required=False),
    Meta("linux-image-686-pae-dbg", "i386", required=False),
)


class FetchError(Exception):
    """A kernel could not be had; the text says what was tried and what was answered."""


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


def ensure(kernel: Kernel) -> Path:
    """The vmlinux; downloaded if it is not there yet. Safe to call from several processes."""
    if kernel.problem:
        raise FetchError(kernel.problem)
    if kernel.meta is None or kernel.path.is_file():
        return kernel.path
    with _lock(kernel.meta.name):
        if not kernel.path.is_file():
            _download(kernel.path, kernel.meta)
    return kernel.path


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "ftpatch" / "kernels"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _lock(name: str) -> Iterator[None]:
    with (_cache() / f".{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _short(text: str) -> str:
    """`6.1-amd64` out of `linux-image-6.1.0-56-amd64-dbg`; other names stay as they are."""
    match = re.search(r"(\d+\.\d+)[\w.+~-]*?-(amd64|arm64|686)\b", text)
    return f"{match[1]}-{match[2].replace('686', 'i386')}" if match else text.replace("/", "-")


def _from_apt(meta: Meta) -> Kernel | None:
    """The kernel behind a meta package; None where apt does not know one that is not required."""
    link = _cache() / meta.name
    problem = ""
    with _lock(meta.name):
        if not link.is_symlink() or time.time() - link.lstat().st_mtime > DAY:
            try:
                target = _resolve(meta)
                link.unlink(missing_ok=True)
                link.symlink_to(target)
            except FetchError as error:
                problem = str(error)
    target = str(link.readlink()) if link.is_symlink() else UNKNOWN
    path = _cache() / target / "vmlinux"
    if target == UNKNOWN:
        problem = problem or (f"apt does not know {meta.name}" if meta.required else "")
        return Kernel(meta.name, path, meta, problem) if problem else None
    if problem and path.is_file():  # offline, say: yesterday's kernel is as good
        print(f"{meta.name}: {problem}; taking the cached {target}", file=sys.stderr)
        problem = ""
    return Kernel(_short(target), path, meta, problem)


def _resolve(meta: Meta) -> str:
    """`<package>_<version>` that a meta package stands for today, or `UNKNOWN`."""
    with _lock(f"apt-{meta.arch}"):
        complaint = _update(meta.arch)
        try:
            depends = _apt(meta.arch, "apt-cache", "depends", meta.name)
        except FetchError as error:  # no such package: so it is, or the lists are not here
            if complaint:
                raise FetchError(f"{error}; before that, {complaint}") from error
            return UNKNOWN
        package = re.search(r"^ *Depends: (linux-image-\S+-dbg)$", depends, re.MULTILINE)
        if package is None:
            return UNKNOWN
        shown = _apt(meta.arch, "apt-cache", "show", "--no-all-versions", package[1])
    (version,) = re.findall(r"^Version: (\S+)$", shown, re.MULTILINE)
    return f"{package[1]}_{version}"


@cache
def _update(arch: str) -> str:
    """Renew an architecture's lists once a day; what went wrong, or an empty string.

    A list that one of the machine's sources does not have need not matter: who asks decides.
    """
    stamp = _cache() / f"apt-{arch}" / "updated"
    if stamp.is_file() and time.time() - stamp.stat().st_mtime < DAY:
        return ""
    try:
        _apt(arch, "apt-get", "update", "-q", "--error-on=any")
    except FetchError as error:
        return str(error)
    stamp.touch()
    return ""


def _download(path: Path, meta: Meta) -> None:
    package, _, version = path.parent.name.partition("_")
    path.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_cache(), prefix=".download-") as folder:
        _apt(meta.arch, "apt-get", "download", "-q", f"{package}={version}", cwd=folder)
        part = Path(folder) / "vmlinux"
        _take_vmlinux(next(Path(folder).glob("*.deb")), part)
        part.replace(path)
    _prune(keep=path.parent)


def _take_vmlinux(deb: Path, part: Path) -> None:
    """The vmlinux is the package's first file: dpkg-deb is stopped there, 4 GB before its end."""
    with (
        subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as packer,
        tarfile.open(fileobj=packer.stdout, mode="r|", bufsize=1 << 20) as archive,
    ):
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None and Path(member.name).name.startswith("vmlinux"):
                with part.open("wb") as out:
                    shutil.copyfileobj(content, out, 1 << 20)
                packer.kill()
                return
    raise FetchError(f"{deb.name} holds no vmlinux")


def _prune(keep: Path) -> None:
    """Remove the kernels that no link names any more: they have some 500 MB each."""
    linked = {str(link.readlink()) for link in _cache().iterdir() if link.is_symlink()}
    for folder in _cache().glob("linux-image-*_*"):
        old = time.time() - folder.lstat().st_mtime > DAY
        if old and folder != keep and folder.name not in linked and not folder.is_symlink():
            shutil.rmtree(folder, ignore_errors=True)


def _apt(arch: str, command: str, *words: str, cwd: str | None = None) -> str:
    """Run apt for an architecture, with lists and cache of its own: no root, no system state."""
    state = _cache() / f"apt-{arch}"
    (state / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (state / "cache" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    settings = {
        "APT::Architecture": arch,
        "APT::Architectures": arch,
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
        "Dir::State::lists": state / "lists",
        "Dir::Cache": state / "cache",
    }
    line = [command, *(f"-o{key}={value}" for key, value in settings.items()), *words]
    try:
        done = subprocess.run(line, cwd=cwd, env=C, capture_output=True, text=True, timeout=STEP)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FetchError(f"{command} {' '.join(words)}: {error}") from error
    if done.returncode:
        last = "; ".join(done.stderr.strip().splitlines()[-3:])
        raise FetchError(f"{command} {' '.join(words)} ({arch}): {last}")
    return done.stdout


if __name__ == "__main__":
    try:
        for each in kernels():
            print(f"{each.name} -> {ensure(each)}", flush=True)
    except FetchError as failure:
        sys.exit(f"fetch: {failure}")
