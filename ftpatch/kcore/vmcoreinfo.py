# SPDX-License-Identifier: MIT
"""VMCOREINFO: what a kernel says of itself to those who read its dump (crash_core.c).

    OSRELEASE=6.1.0-56-amd64
    BUILD-ID=eb4fbcd037e7253717950bf2b93bd5566f47c56f
    SYMBOL(_stext)=ffffffff81000000

A dump by kdump has it as a note. QEMU's has none, but the guest's memory holds the text.
"""

from __future__ import annotations

import mmap
import re
from pathlib import Path

from ftpatch.errors import InputError

__all__ = ["parse_vmcoreinfo", "search_vmcoreinfo"]

MAX_SIZE = 1 << 16
"""Maximum length of the text (bytes); kernels reserve a page, and warn beyond it."""
BEGIN = b"OSRELEASE="
NEEDED = (b"\nPAGESIZE=", b"\nSYMBOL(_stext)=")
TEXT = re.compile(rb"OSRELEASE=[\t\n -~]{16,%d}" % MAX_SIZE)


def parse_vmcoreinfo(text: bytes) -> dict[str, str]:
    """Parse the lines into keys and values; other lines are skipped."""
    lines = text.decode("ascii", "replace").splitlines()
    pairs = (line.partition("=") for line in lines)
    return {key: value for key, equal, value in pairs if equal}


def search_vmcoreinfo(path: Path) -> bytes:
    """Find the text in the memory that a dump holds uncompressed; empty if it is not there.

    The copy that kexec hands over is the last one written, the longest. Raises InputError for what
    cannot be read.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            found = b""
            at = data.find(BEGIN)
            while at >= 0:
                held = TEXT.match(data, at)
                text = held[0] if held else b""
                if len(text) > len(found) and all(word in text for word in NEEDED):
                    found = text
                at = data.find(BEGIN, at + len(BEGIN))
            return found
    except OSError as error:
        raise InputError(path, f"cannot read: {error.strerror}") from None
    except ValueError:  # mmap's, of an empty file
        return b""
