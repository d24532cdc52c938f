# SPDX-License-Identifier: MIT
"""A kernel with all its modules, as its package installs them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.kernels.apt import lock  # noqa: E402
from tests.kernels.fetch import Kernel, ensure, kernels  # noqa: E402

__all__ = ["ensure", "installed", "kernels", "stream_of"]


def installed(kernel: Kernel) -> tuple[Path, Path]:
    """The boot image and the folder of the modules, fetched by apt and unpacked in the tests' cache
    (0.5 GB)."""
    ensure(kernel)
    assert kernel.meta is not None
    where = kernel.path.parent / "installed"
    package = kernel.path.parent.name.partition("_")[0].removesuffix("-dbg")
    with lock(f"{kernel.meta.name}-installed"):
        if not where.is_dir():
            with tempfile.TemporaryDirectory(dir=where.parent) as scratch:
                archive = kernel.meta.archive
                archive.update()
                deb = archive.download(package, Path(scratch))
                part = Path(scratch) / "part"
                subprocess.run(["dpkg-deb", "-x", deb, part], check=True)
                part.replace(where)
    boot = next((where / "boot").glob("vmlinuz-*"))
    return boot, next(path.parent for path in where.rglob("kernel") if path.is_dir())


def stream_of(boot: Path, into: Path) -> tuple[Path, str]:
    """The compressed stream of a bzImage, in a file of its own, and what it is compressed with."""
    from ftpatch.image.payload import read_payload

    data = memoryview(boot.read_bytes())
    layer = read_payload(boot, data).layers[0]
    into.write_bytes(data[layer.offset : layer.offset + layer.size])
    return into, layer.compression
