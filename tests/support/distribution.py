# SPDX-License-Identifier: MIT
"""Programs of the distribution: installed ones, or out of packages that are unpacked, not
installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kernels.apt import Archive, FetchError, folder, lock

__all__ = ["LINKER", "PATH", "libraries", "program_of"]

PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
"""Where the distribution puts programs; what somebody else put elsewhere may have symbols."""
OWN = "amd64"
"""Debian's word for the machine's architecture."""
LINKER = Path("/lib/ld-linux.so.2")
"""The dynamic linker of i386, which programs name."""
FOLDERS = {
    OWN: ("usr/lib/x86_64-linux-gnu",),
    "i386": ("usr/lib/i386-linux-gnu", "lib/i386-linux-gnu"),
}


def libraries(root: Path, arch: str) -> str:
    """Where the libraries of unpacked packages are, for LD_LIBRARY_PATH."""
    return ":".join(str(root / folder) for folder in FOLDERS[arch])


def program_of(
    name: str, packages: Sequence[str] = (), arch: str = OWN
) -> tuple[Path, Path | None]:
    """A program by name or path, and the folder into which its packages are unpacked, None if it
    is installed; ``arch``: Debian's word for another architecture. Skips where it cannot be had."""
    found = shutil.which(name, path=PATH) if arch == OWN else None
    if found is not None:
        return Path(found).resolve(), None
    if not packages:
        pytest.skip(f"no {name}")
    root = _unpacked(packages, arch)
    for place in PATH.split(":"):
        one = (root / place.strip("/") / name).resolve()
        if one.is_file():
            return one, root
    raise AssertionError(f"no {name} in {' '.join(packages)}")


def _unpacked(packages: Sequence[str], arch: str) -> Path:
    """The packages' files, kept for the next time."""
    kept = "programs" if arch == OWN else f"programs-{arch}"
    root = folder().parent / kept / packages[0]
    with lock("programs"):
        if root.is_dir():
            return root
        part = root.with_name(f"{packages[0]}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        archive = Archive(arch)
        try:
            wrong = archive.update()
            if wrong and arch == OWN:
                raise FetchError(wrong)  # of another one, some sources may have nothing
            archive.run("apt-get", "download", "-q", *packages, cwd=part)
        except FetchError as error:
            pytest.skip(str(error))
        for deb in sorted(part.glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", deb, part], check=True)
            deb.unlink()
        part.rename(root)
    return root
