# SPDX-License-Identifier: MIT
"""Modules for a Debian kernel, built from source with its own headers."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from .apt import Archive, FetchError, folder, lock
from .fetch import Kernel
from .qemu import need

__all__ = ["CROSS", "build_modules", "ensure_headers"]

HOST = "amd64"
HERE = Path(__file__).parent
CROSS = {
    "arm64": ("ARCH=arm64", "CROSS_COMPILE=aarch64-linux-gnu-"),
    "riscv64": ("ARCH=riscv", "CROSS_COMPILE=riscv64-linux-gnu-", "CC=riscv64-linux-gnu-gcc-12"),
}
"""By Debian's word, make's for a compiler that runs here."""
NO_BTF = "CONFIG_DEBUG_INFO_BTF_MODULES="
"""Types for BPF need pahole."""
BUILD_LIMIT = 300  # seconds; it takes 3


def build_modules(kernel: Kernel, *sources: str, scratch: Path) -> dict[str, bytes]:
    """The modules by the names of their files. Raises FetchError where there are no headers."""
    need("gcc-12")
    if kernel.meta is not None and kernel.meta.arch == "riscv64":
        need("riscv64-linux-gnu-gcc-12")
    headers = ensure_headers(kernel)
    for name in sources:
        (scratch / name).write_bytes((HERE / name).read_bytes())
    objects = " ".join(name.replace(".c", ".o") for name in sources)
    (scratch / "Makefile").write_text(f"obj-m := {objects}\n")
    assert kernel.meta is not None
    command: list[str | Path] = ["make", "-C", headers, f"M={scratch}", "modules", NO_BTF]
    command += CROSS.get(kernel.meta.arch, ())
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_LIMIT)
    assert done.returncode == 0, done.stderr
    names = [name.replace(".c", ".ko") for name in sources]
    return {name: (scratch / name).read_bytes() for name in names}


def ensure_headers(kernel: Kernel) -> Path:
    """The folder that a module is built in, in the cache. Beside it lie those that all
    architectures share, in a folder whose name ends in -common."""
    assert kernel.meta is not None
    package, _, version = kernel.path.parent.name.partition("_")
    release = package.removeprefix("linux-image-").removesuffix("-dbg")
    short = release.rpartition("-")[0]
    where = kernel.path.parent / "headers"
    built = where / "usr/src" / f"linux-headers-{release}"
    with lock(f"{kernel.meta.name}-headers"):
        if not where.is_dir():
            major = ".".join(short.split(".")[:2])
            wanted = (f"headers-{release}", f"headers-{short}-common", f"kbuild-{major}")
            with tempfile.TemporaryDirectory(dir=folder(), prefix=".download-") as held:
                part = Path(held) / "headers"
                for name in wanted:
                    place = Path(held) / name
                    place.mkdir()
                    tools = name.startswith("kbuild-") and kernel.meta.arch in CROSS
                    archive = Archive(HOST) if tools else kernel.meta.archive
                    archive.update()
                    full = f"linux-{name}={version}"
                    if tools and kernel.meta.suite:  # those of a newer suite do not run here
                        full = _named(archive, f"linux-kbuild-{short.partition('+')[0]}")
                    deb = archive.download(full, place)
                    subprocess.run(["dpkg-deb", "-x", deb, part], check=True)
                    own = part / "usr/lib" / full
                    if own.is_dir():
                        own.rename(own.with_name(f"linux-kbuild-{short}"))
                makefile = part / built.relative_to(where) / "Makefile"
                if not makefile.is_file():
                    raise FetchError(f"linux-headers-{release} has no Makefile")
                text = makefile.read_text()
                makefile.write_text(text.replace("/usr/src", str(where / "usr/src")))
                part.replace(where)
    return built


def _named(archive: Archive, begin: str) -> str:
    """The package whose name begins so. Raises FetchError if there is none."""
    found = archive.run("apt-cache", "search", "--names-only", f"^{begin}").split()
    if not found:
        raise FetchError(f"no {begin} in {archive.name}")
    return found[0]
