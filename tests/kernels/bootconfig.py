# SPDX-License-Identifier: MIT
"""The kernel's own parser of bootconfigs, from its source: Debian's kernels are built without it,
and no package has the tool."""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import IO

from .apt import Archive, FetchError, files_of, folder, lock

__all__ = ["parser"]

PACKAGE = "linux-source-6.1"
NEEDED = ("tools/bootconfig/", "tools/scripts/", "lib/bootconfig.c", "include/linux/bootconfig.h")
"""What the tool is built from."""


def parser() -> Path:
    """The tool ``bootconfig``. Raises FetchError."""
    archive = Archive("amd64")
    path = folder() / "bootconfig"
    with lock("bootconfig"):
        if not path.is_file():
            archive.update()
            with tempfile.TemporaryDirectory(dir=folder(), prefix=".download-") as held:
                _make(archive, Path(held), path)
    return path


def _make(archive: Archive, scratch: Path, path: Path) -> None:
    deb = archive.download(PACKAGE, scratch)
    for name, source in files_of(deb):
        if name.endswith(".tar.xz"):
            _unpack(source, scratch)
            break
    tool = next(scratch.glob("*/tools/bootconfig"), None)
    if tool is None:
        raise FetchError(f"{PACKAGE} has no {NEEDED[0]}")
    done = subprocess.run(["make", "-C", tool], capture_output=True, text=True)
    if done.returncode:
        raise FetchError(f"bootconfig: {done.stderr.strip().splitlines()[-1:]}")
    (tool / "bootconfig").rename(path)


def _unpack(source: IO[bytes], scratch: Path) -> None:
    with tarfile.open(fileobj=source, mode="r|xz") as tar:
        for member in tar:
            _, _, name = member.name.partition("/")
            if member.isfile() and name.startswith(NEEDED):
                tar.extract(member, scratch, filter="data")
