# SPDX-License-Identifier: MIT
"""A user's stub in a kernel's module: its code in one piece, and an entry that calls it.

    .text.ftpatch    | stub as it was linked, its pages in order | entry |

The loader places code and data apart, and the stub was linked with what lies between them. So it
can have constants, but nothing that it writes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ftpatch.arch.stub_entry import stub_entry
from ftpatch.elf.elf_file import Elf, map_file
from ftpatch.elf.headers import Section, Segment
from ftpatch.errors import InputError
from ftpatch.ftrace.laid_callee import Entry, LaidCallee, place_of_code
from ftpatch.ftrace.sites import Sites
from ftpatch.inject.stub import CALLERS, RETURNS, Part, read_stub

__all__ = ["stub_in_module"]

PAGE = 4096
"""Alignment of the stub: adrp (Arm ARM C6.2.13) counts in pages of 4 KB."""
LINE = 16
"""Alignment of the entry."""
UNUSED = (".dynamic", ".got", ".got.plt")
"""Sections that every shared object has for its linker, who has nothing to do here."""
MAX_STUB = 1 << 20
"""Maximum size of a stub (bytes)."""
(CALLER, REGS_CALLER), (RETURN, _) = CALLERS, RETURNS
NAME = "ftpatch_caller"


def stub_in_module(sites: Sites, path: Path) -> LaidCallee:
    """Lay out the stub at ``path`` for a module, all of whose sites are to call it. Raises
    InputError for one that does not work there."""
    stub = read_stub(path, own=False, needs=CALLERS)
    header = sites.image.elf.skeleton
    own = (header.machine, header.elf_class)
    if stub.made_for != own:
        raise InputError(path, "the stub is for another architecture")
    if stub.address(REGS_CALLER) is not None:
        reason = f"a stub in a module cannot have registers ({REGS_CALLER})"
        raise InputError(path, reason, f"define {CALLER}, which takes two addresses")
    if stub.address(RETURN) is not None:
        reason = f"a stub in a module cannot have returns ({RETURN})"
        raise InputError(path, reason, f"define {CALLER} only")
    _require_constant(path)
    base, code = _joined(path, [part for part in stub.parts if not part.flags & Segment.PF_W])
    callee = (stub.address(CALLER) or 0) - base
    if not 0 <= callee < len(code):
        raise InputError(path, f"the stub's {CALLER} is not in its code")
    code = code.ljust(-(-len(code) // LINE) * LINE, b"\0")
    at = len(code)
    code += stub_entry(sites.arch.name, callee - at)
    return LaidCallee(
        code=code,
        align=PAGE,
        start=place_of_code(sites.image, PAGE),
        entries=(Entry(NAME, at, len(code) - at),),
        called=np.zeros(len(sites), np.intp),
    )


def _require_constant(path: Path) -> None:
    """Raise InputError for a stub with data that it writes, or of which nothing says so."""
    data, mapped = map_file(path)
    sections = Elf.read(path, data, mapped=mapped).sections
    if not sections:
        raise InputError(path, "the stub has no section headers", "do not strip them")
    wanted = Section.SHF_ALLOC | Section.SHF_WRITE
    for section in sections:
        if section.flags & wanted == wanted and section.size and section.name not in UNUSED:
            reason = f"the stub writes data ({section.name}), which it cannot have in a module"
            raise InputError(path, reason, "use registers and the stack only")


def _joined(path: Path, parts: list[Part]) -> tuple[int, bytes]:
    """Link address of the first page of the parts, and their contents from there on."""
    base = min((part.address for part in parts), default=0) // PAGE * PAGE
    end = max((part.address + part.size for part in parts), default=0)
    if end - base > MAX_STUB:
        raise InputError(path, f"the stub spans {end - base} bytes, more than {MAX_STUB}")
    held = bytearray(end - base)
    for part in parts:
        at = part.address - base
        held[at : at + len(part.data)] = part.data.tobytes()
    return base, bytes(held)
