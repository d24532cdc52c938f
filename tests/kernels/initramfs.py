# SPDX-License-Identifier: MIT
"""An initramfs as initramfs-tools makes it when a kernel is installed, without doing that.

For this machine's architecture its own tool runs, with the package's modules and configuration
mounted where it looks; for another that one's, in a folder with Debian's packages, by qemu-user.
Kept in the cache beside the kernel: ``initrd``, or ``initrd.MODULE`` of those with a few modules.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .apt import Archive, FetchError, folder, lock
from .fetch import Kernel

__all__ = ["ensure_initramfs"]

LIMIT = 1800  # seconds; it takes 20, and 30 for another architecture, on a machine at rest
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
mkinitramfs -d "$3" -o "$2" "$version"
"""
# In a user namespace besides: since v6.7 each has its own binfmt_misc, and the machine's is left.
FOREIGN = """
set -e
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
cat /usr/lib/binfmt.d/qemu-aarch64*.conf >/proc/sys/fs/binfmt_misc/register
mount --rbind /dev "$1/dev"
mount --rbind /proc "$1/proc"
version=$(ls "$1/lib/modules")
depmod -b "$1" "$version"
chroot "$1" /usr/sbin/mkinitramfs -o /initrd "$version"
mv "$1/initrd" "$2"
"""
PROGRAMS = (
    *("initramfs-tools", "busybox-static", "udev", "e2fsprogs", "zstd", "bash", "dash", "mawk"),
    *("coreutils", "findutils", "debianutils", "util-linux", "sed", "grep", "tar", "gzip"),
    *("dpkg", "libc-bin"),
)
"""Packages that the tool needs: its own dependencies, and what Debian takes for granted."""


def ensure_initramfs(kernel: Kernel, *modules: str) -> Path:
    """The initrd of a kernel of this machine's architecture, or of arm64; with these ``modules``
    and what they need alone, if there are any. Safe to call from several processes. Needs root.
    Raises FetchError."""
    if kernel.problem or kernel.meta is None:
        raise FetchError(kernel.problem or "a file, whose modules nobody knows")
    path = kernel.path.parent / ".".join(["initrd", *modules[:1]])
    with lock(f"{kernel.meta.name}-initrd"):
        if not path.is_file():
            package = path.parent.name.partition("_")[0].removesuffix("-dbg")
            archive = kernel.meta.archive
            archive.update()
            with tempfile.TemporaryDirectory(dir=folder(), prefix=".initramfs-") as name:
                scratch = Path(name)
                deb = archive.download(package, scratch)
                root, part = scratch / "root", scratch / "initrd"
                if archive.arch == "arm64":
                    _unpack_programs(archive, scratch, root)
                _run("dpkg-deb", "-x", deb, root)
                if archive.arch == "arm64":
                    _choose(root / "etc/initramfs-tools", modules)
                    _run("unshare", "-Urm", "sh", "-c", FOREIGN, "sh", root, part)
                else:
                    settings = scratch / "settings"
                    shutil.copytree("/etc/initramfs-tools", settings)
                    _choose(settings, modules)
                    _run("unshare", "-m", "sh", "-c", SCRIPT, "sh", root, part, settings)
                path.parent.mkdir(exist_ok=True)
                part.replace(path)
    return path


def _unpack_programs(archive: Archive, scratch: Path, root: Path) -> None:
    """A folder with the tool and what it runs, for a shell that is told to take it as /."""
    debs, status = scratch / "debs", scratch / "status"
    (debs / "partial").mkdir(parents=True)
    status.touch()  # nothing is installed
    words = ["-qy", "--download-only", "--no-install-recommends", "-oDebug::NoLocking=1"]
    words += [f"-oDir::State::status={status}", f"-oDir::Cache::archives={debs}"]
    archive.run("apt-get", "install", *words, *PROGRAMS)
    for deb in debs.glob("*.deb"):
        _run("dpkg-deb", "-x", deb, root)
    for name in ("dev", "proc", "tmp", "var/tmp"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "usr/bin/awk").symlink_to("mawk")  # as the package's script does


def _choose(settings: Path, modules: Sequence[str]) -> None:
    """Configure the tool for these modules alone, if there are any (initramfs.conf(5))."""
    if modules:
        with (settings / "initramfs.conf").open("a") as file:
            file.write("MODULES=list\n")
        (settings / "modules").write_text("\n".join(modules) + "\n")


def _run(*words: str | Path) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode:
        raise FetchError(f"{words[0]}: {done.stderr.strip()[-300:]}")
