# SPDX-License-Identifier: MIT
"""Choosing the library calls that can be traced: by the names of what a program's PLT imports."""

from __future__ import annotations

import re

import numpy as np

from ftpatch.arch import arch_of
from ftpatch.arch.plt_thunks import plt_thunks_of
from ftpatch.elf.dynamic import Tag, dynamic_tags
from ftpatch.errors import UsageError
from ftpatch.image import Image
from ftpatch.names.function_names import FunctionNames
from ftpatch.names.plt import UNHOOKED, Plt, read_plt

__all__ = ["find_calls"]

UNTRACED = re.compile(
    "_*(mcount|fentry__|gnu_mcount_nc)"  # of profilers: they look into their callers' frames
    "|__libc_start_main|__cxa_finalize|__gmon_start__"  # called by the start files alone
)
"""Functions that are no calls of the program."""


def find_calls(image: Image, *, hooks: bool) -> Plt:
    """Find the PLT entries whose calls a tracer can follow. ``hooks``: it replaces return
    addresses. Raises UsageError if there are none."""
    if not image.is_program:
        raise UsageError(image.path, f"{image.kind}, not a program", "use an executable")
    arch = arch_of(image.elf.skeleton.machine, image.elf.skeleton.elf_class)
    if arch is not None:
        plt_thunks_of(arch.name)  # or it has none
    plt = read_plt(image)
    kept = [not UNTRACED.fullmatch(name) for name in plt.names]
    if not any(kept):
        if len(image.dynamic_symbols) > 1 and _slots(image) > len(plt):
            reason = "its PLT's entries are of an unknown form"
            raise UsageError(image.path, reason, "use GNU ld and an older -mcpu")
        reason = "calls no libraries through a PLT"
        raise UsageError(image.path, reason, "link it dynamically, without -fno-plt")
    if hooks:
        twice = FunctionNames(image).twice
        kept = [
            one and start not in twice and not UNHOOKED.fullmatch(name)
            for one, start, name in zip(kept, plt.start.tolist(), plt.names, strict=True)
        ]
    return plt.take(np.array(kept, bool))


def _slots(image: Image) -> int:
    """Count the relocations of a PLT's slots."""
    tags = dynamic_tags(image.elf)
    words = 3 if tags.get(Tag.PLTREL) == Tag.RELA else 2
    return tags.get(Tag.PLTRELSZ, 0) // (words * image.elf.word)
