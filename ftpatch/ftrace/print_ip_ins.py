# SPDX-License-Identifier: MIT
"""Code as a kernel prints it: print_ip_ins() in kernel/trace/ftrace.c.

    unsigned char, or %*phC   e8:3b:c1     movzx, or no loop
    char                      ffffffe8:3b:ffffffc1     movsx, where char is signed

Linux kernel commit 6c14133d2d3f ("ftrace: Do not blindly read the ip address in ftrace_bug()")
(in v5.14) brought the second form, which stable kernels took over, and 30f7d1cac2aa
("ftrace: Fix char print issue in print_ip_ins()") (in v6.1) the first again. Which of them an image
has is read off its code; a module shows no more than the version of its kernel.
"""

from __future__ import annotations

import re

import numpy as np

from ftpatch.arch import Arch
from ftpatch.core.columns import addresses
from ftpatch.image import Image

__all__ = ["signed_bytes"]

PRINTERS = (b"print_ip_ins", b"ftrace_bug")
"""It, or what it is inlined into."""
MAX_FUNCTION = 1 << 12
"""Bytes of a function to examine."""
FIXED = (6, 1)
VERSION = re.compile(rb"\0vermagic=(\d+)\.(\d+)")


def signed_bytes(image: Image, arch: Arch) -> bool | None:
    """Return whether the kernel prints 0xe8 as ffffffe8; None where that cannot be told."""
    if not arch.signed_char:
        return False
    if image.is_relocatable:
        section = image.elf.section(".modinfo")
        held = image.elf.contents(section.offset, section.size, ".modinfo") if section else b""
        found = VERSION.search(b"\0" + bytes(held))
        return None if found and (int(found[1]), int(found[2])) < FIXED else False
    known = image.kallsyms
    names = known.symbols.names(known.row)
    for printer in PRINTERS:
        parts = [
            row
            for row, name in enumerate(names)
            if name == printer.decode() or name.startswith(printer.decode() + ".")
        ]
        signs = [_reads_signed(image, arch, int(known.group[row])) for row in parts]
        if any(sign is not None for sign in signs):
            return any(signs)
    return None


def _reads_signed(image: Image, arch: Arch, group: int) -> bool | None:
    """Return whether the function at a symbol sign-extends bytes; None where there is no code."""
    start, end = int(image.kallsyms.start[group]), int(image.kallsyms.ends[group])
    if group + 1 < len(image.kallsyms.start):
        end = min(end, int(image.kallsyms.start[group + 1]))
    place = addresses(start)
    offset = image.elf.offset_of(place, executable=True)
    code, _ = image.elf.gather(offset, min(end - start, MAX_FUNCTION))
    return arch.extends_bytes(code[0].tobytes(), start) if int(np.max(offset)) >= 0 else None
