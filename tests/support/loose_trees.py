# SPDX-License-Identifier: MIT
"""Folders of kernel modules, packed and not, with all else that such folders have."""

from __future__ import annotations

import gzip
import lzma
import os
import stat
from collections.abc import Callable
from pathlib import Path

import zstandard

from tests.support.loose_forms import FORMS
from tests.support.loose_images import module, section_of, signed

__all__ = ["MODULES", "PACK", "UNPACK", "contents", "forest", "plant", "untraced"]

PACK: dict[str, Callable[[bytes], bytes]] = {
    ".ko": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}
UNPACK: dict[str, Callable[[bytes], bytes]] = {
    ".ko": bytes,
    ".gz": gzip.decompress,
    ".xz": lzma.decompress,
    ".zst": lambda data: zstandard.ZstdDecompressor().decompress(data),
}
MODULES = {
    "first.ko": "x86_64",
    "kernel/net/second.ko.xz": "x86_64",
    "kernel/net/third.ko.zst": "arm64",
    "kernel/sound/fourth.ko.gz": "i386",
    "kernel/sound/core/fifth.ko": "riscv64-ops",
}
"""Place in the tree, and form."""


def untraced() -> bytes:
    """A module all of whose functions are notrace."""
    image = module(FORMS["x86_64"], name="untraced")
    del image.rows["__mcount_loc"]
    image.sections.remove(section_of(image, "__mcount_loc"))
    return image.build()


def plant(root: Path, *, sign: str = "") -> Path:
    """A small tree of five modules with sites, one without, and other things; ``sign`` names one
    that is signed."""
    for place, form in MODULES.items():
        path = root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        data = module(FORMS[form], name=path.name.split(".")[0]).build()
        path.write_bytes(PACK[path.suffix](signed(data) if place == sign else data))
    (root / "kernel/untraced.ko").write_bytes(untraced())
    (root / "modules.dep").write_text("first.ko:\n")
    (root / "modules.dep").chmod(0o640)
    os.utime(root / "modules.dep", (1_600_000_000, 1_600_000_000))
    (root / "empty/inside").mkdir(parents=True)
    (root / "build").symlink_to("/nonexistent/build")
    (root / "kernel/alias.ko").symlink_to("../first.ko")
    (root / "kernel/loop").symlink_to("..")
    (root / "folder.ko").mkdir()
    (root / "folder.ko/readme").write_text("not a module\n")
    return root


def forest(root: Path, number: int) -> Path:
    """That many modules of all forms in a few folders."""
    names = list(FORMS)
    for i in range(number):
        path = root / f"part{i % 3}" / f"m{i:03}.ko"
        path.parent.mkdir(parents=True, exist_ok=True)
        functions = [(f"f{i}_{j}", ".text") for j in range(1 + i % 4)]
        path.write_bytes(module(FORMS[names[i % 6]], functions, name=f"m{i:03}").build())
    return root


def contents(root: Path) -> dict[str, tuple[str, object]]:
    """Everything in a tree: what it is, and what is in it."""
    out: dict[str, tuple[str, object]] = {}
    for path in sorted(root.rglob("*")):
        held = path.lstat()
        place = str(path.relative_to(root))
        if stat.S_ISLNK(held.st_mode):
            out[place] = "link", str(path.readlink())
        elif stat.S_ISDIR(held.st_mode):
            out[place] = "folder", None
        elif stat.S_ISREG(held.st_mode):
            out[place] = "file", path.read_bytes()
        else:
            out[place] = "other", stat.S_IFMT(held.st_mode)
    return out
