# SPDX-License-Identifier: MIT
"""Cross tools that the machine's own suite lacks: a newer suite's packages, unpacked into the cache
and never installed.

    ~/.cache/ftpatch/cross/<arch>/usr/bin    <triple>-gcc, -as, -ld, ...: scripts; qemu-<arch>
                                             and qemu-system-<arch>
                                 /usr/own    the programs that they start, by the loader and
                                             with the libraries of that suite
                                 /usr/parts  what gcc starts: cc1, collect2, as, ld
                                 /usr/<triple>    libc and its headers
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.kernels.apt import Archive, FetchError, folder, lock

__all__ = ["CROSS", "cross_folder", "use_cross_root"]

HOST, LIBRARIES, LOADER = "amd64", "usr/lib/x86_64-linux-gnu", "usr/lib64/ld-linux-x86-64.so.2"
SUITE = "trixie"
HOST_PACKAGES = "libc6 libgcc-s1 libstdc++6 libgmp10 libisl23 libjansson4 libmpc3 libmpfr6"
HOST_PACKAGES += " libsframe1 libzstd1 zlib1g binutils-common qemu-user"
MACHINE_PACKAGES = """
    qemu-system-data qemu-system-misc libaio1t64 libasound2t64 libblkid1 libbpf1 libbrlapi0.8
    libbz2-1.0 libcacard0 libcap-ng0 libcap2 libcapstone5 libdaxctl1 libelf1t64 libfdt1 libffi8
    libfuse3-4 libglib2.0-0t64 libgnutls30t64 libhogweed6t64 libibverbs1 libidn2-0 libjpeg62-turbo
    libkmod2 liblz4-1 liblzma5 libmount1 libncursesw6 libndctl6 libnettle8t64 libnl-3-200
    libnl-route-3-200 libnspr4 libnss3 libnuma1 libp11-kit0 libpcre2-8-0 libpcsclite1 libpixman-1-0
    libpmem1 libpng16-16t64 librdmacm1t64 libsasl2-2 libseccomp2 libselinux1 libslirp0 libsqlite3-0
    libssl3t64 libsystemd0 libtasn1-6 libtinfo6 libudev1 libunistring5 liburing2 libusb-1.0-0
    libusbredirparser1t64 libuuid1 libvdeplug2t64 libxxhash0
"""
"""qemu-system-loongarch64 and what it needs: QEMU 7.2 boots no kernel of today by -kernel."""
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
            *MACHINE_PACKAGES.split(),
            *(f"{name}-{self.triple}" for name in ("binutils", f"cpp-{self.gcc}")),
            *(f"{name}-{self.gcc}-{self.triple}" for name in ("gcc", "g++")),
            *(f"{name}-{cross}" for name in ("libc6", "libc6-dev", "libgcc-s1", "linux-libc-dev")),
            *(f"{name}-{self.gcc}-dev-{cross}" for name in ("libgcc", "libstdc++")),
            f"libstdc++6-{cross}",
        ]


CROSS = {"loongarch64": _Tools("loongarch64-linux-gnu", "loong64", "14")}


def cross_folder(arch: str) -> Path:
    """Where the tools of an architecture will be; by this folder qemu finds its libraries."""
    return folder().parent / "cross" / arch / "usr" / CROSS[arch].triple


@cache
def use_cross_root(arch: str) -> Path:
    """Put the tools of an architecture on the PATH; the folder that they are in. Skips where they
    cannot be had."""
    if platform.machine() != "x86_64":
        pytest.skip("the packages are those of amd64")
    root = folder().parent / "cross" / arch
    try:
        with lock(f"cross-{arch}"):
            listed, wanted = root / "packages.txt", "\n".join(CROSS[arch].packages)
            if not listed.is_file() or listed.read_text() != wanted:
                shutil.rmtree(root, ignore_errors=True)
                _make(CROSS[arch], root)
                listed.write_text(wanted)
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
    for name in ("cc1", "cc1plus", "collect2"):
        _script(part / "usr/parts" / name, root, libexec / name, name)
    for name in TOOLS:
        _script(part / "usr/bin" / f"{triple}-{name}", root, usr / "own" / f"{triple}-{name}", name)
        _script(part / "usr/parts" / name, root, usr / "own" / f"{triple}-{name}", name)
    options = [f"--sysroot={root}", f"-B{usr / 'parts'}/", f"-B{lib}/", f"-B{libc / 'lib'}/"]
    options += ["-isystem", str(libc / "include"), f"-L{lib}", f"-L{libc / 'lib'}"]
    plus = libc / "include/c++" / tools.gcc
    headers = ["-isystem", str(plus), "-isystem", str(plus / triple)]
    for name, more in (("gcc", []), ("g++", headers)):
        own = usr / "own" / f"{triple}-{name}-{tools.gcc}"
        _script(part / "usr/bin" / f"{triple}-{name}", root, own, str(own), *more, *options)
    machine = f"qemu-system-{triple.partition('-')[0]}"
    data = ["-L", str(usr / "share/qemu")]
    _script(part / "usr/bin" / machine, root, usr / "own" / machine, machine, *data)
    for path in (part / "usr/own").glob("qemu-*"):
        if path.name == f"qemu-{triple.partition('-')[0]}":
            shutil.move(path, part / "usr/bin" / path.name)
        elif path.name != machine:
            path.unlink()  # 60 others


def _script(path: Path, root: Path, program: Path, name: str, *options: str) -> None:
    """A script that starts a program as ``name``."""
    words = [root / LOADER, "--library-path", root / LIBRARIES, "--argv0", name, program, *options]
    path.write_text(f'#!/bin/sh\nexec {" ".join(map(str, words))} "$@"\n')
    path.chmod(0o755)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(use_cross_root(name) / "usr/bin")
