# SPDX-License-Identifier: MIT
"""Names that only debug information has: of functions that were inlined wherever they are called.

Entries are not read for that, which takes seconds for a kernel: compilers put the names into
.debug_str, each ended by a zero, and those shorter than a reference to it into .debug_info.
"""

from __future__ import annotations

import re

from ftpatch.errors import InputError
from ftpatch.image import Image
from ftpatch.names.spelling import last_word

__all__ = ["is_in_debug_strings"]

SHORT = 8
"""Bytes, with the zero, up to which a name may be in .debug_info itself."""
MAX_INFO = 1 << 26
"""Maximum size of a .debug_info that is searched (bytes)."""
SHF_COMPRESSED = 1 << 11


def is_in_debug_strings(image: Image, text: str) -> bool:
    """Return whether debug information has the last identifier of a name, as a whole string. False
    for what is compressed."""
    word = last_word(text)
    if not word or "*" in text or "?" in text:
        return False
    wanted = re.compile(rb"(?<![\w$.])" + re.escape(word.encode()) + rb"\0")
    for name in (".debug_str", ".debug_info"):
        section = image.elf.section(name)
        if section is None or section.flags & SHF_COMPRESSED:
            continue
        if name == ".debug_info" and (len(word) >= SHORT or section.size > MAX_INFO):
            continue
        try:
            held = image.elf.contents(section.offset, section.size, name)
        except InputError:
            continue
        if wanted.search(held.tobytes()):
            return True
    return False
