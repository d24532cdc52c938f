# SPDX-License-Identifier: MIT
"""Cross tools that the machine's own suite lacks: a newer suite's packages, unpacked into the cache
and never installed.

    ~/.cache/ftpatch/cross/<arch>/usr/bin    <triple>-gcc, -as, -ld, ...: scripts; qemu-<arch>
                                 /usr/own    the programs that they start, by the loader and with the
                                             libraries of that suite
                                 /usr/parts  what gcc starts: cc1, collect2, as, ld
                                 /usr/<triple>    libc and its headers
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.kernels.apt import Archive, FetchError, folder, lock

__all__ = ["use_cross_root"]

HOST, LIBRARIES, LOADER = "amd64", "usr/lib/x86_64-linux-gnu", "usr/lib64/ld-linux-x86-64.so.2"
SUITE = "trixie"
HOST_PACKAGES = "libc6 libgcc-s1 libstdc++6 libgmp10 libisl23 libjansson4 libmpc3 libmpfr6"
HOST_PACKAGES += " libsframe1 libzstd1 zlib1g binutils-common qemu-user"
TOOLS = ("as", "ld", "ld.bfd", "nm", "objcopy", "objdump", "readelf", "strip", "ar")


@dataclass(frozen=True)
class _Tools:
    triple: str
    debian: str
    gcc: str

    @property
    def packages(self) -> list[str]:
        """Those of the target; each comes with what it needs."""
        cross = f"{self.debian}-cross"
        return [
            *HOST_PACKAGES.split(),
            *(f"{name}-{self.triple}" for name in ("binutils", f"cpp-{self.gcc}")),
            f"gcc-{self.gcc}-{self.triple}",
            *(f"{name}-{cross}" for name in ("libc6", "libc6-dev", "libgcc-s1", "linux-libc-dev")),
            f"libgcc-{self.gcc}-dev-{cross}",
        ]


CROSS = {"loongarch64": _Tools("loongarch64-linux-gnu", "loong64", "14")}


@cache
def use_cross_root(arch: str) -> Path:
    """Put the tools of an architecture on the PATH; the folder that they are in. Skips where they
    cannot be had."""
    if platform.machine() != "x86_64":
        pytest.skip("the packages are those of amd64")
    root = folder().parent / "cross" / arch
    try:
        with lock(f"cross-{arch}"):
            if not root.is_dir():
                _make(CROSS[arch], root)
    except (FetchError, OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no tools for {arch}: {error}")
    os.environ["PATH"] = f"{root / 'usr/bin'}:{os.environ['PATH']}"
    return root


def _make(tools: _Tools, root: Path) -> None:
    archive = Archive(HOST, SUITE)
    archive.update()
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root.parent, prefix=".unpack-") as scratch:
        part, debs = Path(scratch, "root"), Path(scratch, "debs")
        debs.mkdir()
        archive.run("apt-get", "download", "-q", *tools.packages, cwd=debs)
        for deb in sorted(debs.glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", deb, part], check=True, capture_output=True)
        bin_ = part / "usr/bin"
        bin_.rename(part / "usr/own")
        bin_.mkdir()
        _scripts(tools, part, root)
        part.rename(root)


def _scripts(tools: _Tools, part: Path, root: Path) -> None:
    """``root``: where ``part`` will be."""
    usr, triple = root / "usr", tools.triple
    libexec = usr / "libexec/gcc-cross" / triple / tools.gcc
    lib = usr / "lib/gcc-cross" / triple / tools.gcc
    libc = usr / triple
    (part / "usr/parts").mkdir()
    for name in ("cc1", "collect2"):
        _script(part / "usr/parts" / name, root, libexec / name, name)
    for name in TOOLS:
        _script(part / "usr/bin" / f"{triple}-{name}", root, usr / "own" / f"{triple}-{name}", name)
        _script(part / "usr/parts" / name, root, usr / "own" / f"{triple}-{name}", name)
    options = [f"--sysroot={root}", f"-B{usr / 'parts'}/", f"-B{lib}/", f"-B{libc / 'lib'}/"]
    options += ["-isystem", str(libc / "include"), f"-L{lib}", f"-L{libc / 'lib'}"]
    gcc = usr / "own" / f"{triple}-gcc-{tools.gcc}"
    _script(part / "usr/bin" / f"{triple}-gcc", root, gcc, str(gcc), *options)
    for path in (part / "usr/own").glob("qemu-*"):
        if path.name == f"qemu-{triple.partition('-')[0]}":
            shutil.move(path, part / "usr/bin" / path.name)
        else:
            path.unlink()  # 30 others


def _script(path: Path, root: Path, program: Path, name: str, *options: str) -> None:
    """A script that starts a program as ``name``."""
    words = [root / LOADER, "--library-path", root / LIBRARIES, "--argv0", name, program, *options]
    path.write_text(f'#!/bin/sh\nexec {" ".join(map(str, words))} "$@"\n')
    path.chmod(0o755)
