# SPDX-License-Identifier: MIT
"""An initramfs as initramfs-tools makes it when a kernel is installed, without doing that: its
package's modules and configuration are mounted where the tool looks, for the tool alone.

Kept in the cache beside the kernel: ``initrd``, or ``initrd.MODULE`` of those with a few modules.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .apt import FetchError, folder, lock
from .fetch import Kernel

__all__ = ["ensure_initramfs"]

LIMIT = 600  # seconds; it takes 20
# In a mount namespace of its own; what is there without one is an empty folder.
SCRIPT = """
set -e
mkdir -p /lib/modules
mount -t tmpfs none /lib/modules
mount -t tmpfs none /boot
cp "$1"/boot/config-* /boot/
version=$(ls "$1/lib/modules")
mkdir "/lib/modules/$version"
mount --bind "$1/lib/modules/$version" "/lib/modules/$version"
depmod "$version"
mkinitramfs ${3:+-d "$3"} -o "$2" "$version"
"""


def ensure_initramfs(kernel: Kernel, *modules: str) -> Path:
    """The initrd of a kernel of this machine's architecture, whose programs are taken into it; with
    these ``modules`` and what they need alone, if there are any. Safe to call from several
    processes. Needs root."""
    if kernel.problem or kernel.meta is None:
        raise FetchError(kernel.problem or "a file, whose modules nobody knows")
    path = kernel.path.parent / ".".join(["initrd", *modules[:1]])
    with lock(kernel.meta.name):
        if not path.is_file():
            package = path.parent.name.partition("_")[0].removesuffix("-dbg")
            kernel.meta.archive.update()
            with tempfile.TemporaryDirectory(dir=folder(), prefix=".initramfs-") as name:
                scratch = Path(name)
                deb = kernel.meta.archive.download(package, scratch)
                root, part = scratch / "root", scratch / "initrd"
                _run("dpkg-deb", "-x", deb, root)
                settings = [_settings(scratch / "settings", modules)] if modules else []
                _run("unshare", "-m", "sh", "-c", SCRIPT, "sh", root, part, *settings)
                path.parent.mkdir(exist_ok=True)
                part.replace(path)
    return path


def _settings(folder: Path, modules: Sequence[str]) -> Path:
    """The tool's configuration, for these modules alone (initramfs.conf(5))."""
    shutil.copytree("/etc/initramfs-tools", folder)
    with (folder / "initramfs.conf").open("a") as file:
        file.write("MODULES=list\n")
    (folder / "modules").write_text("\n".join(modules) + "\n")
    return folder


def _run(*words: str | Path) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode:
        raise FetchError(f"{words[0]}: {done.stderr.strip()[-300:]}")
