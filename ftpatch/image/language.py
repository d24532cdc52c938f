# SPDX-License-Identifier: MIT
"""Source language of a program, where it decides about compiler options, or what is possible.

Go        sections .go.buildinfo, .note.go.buildid, .gopclntab; without sections, the first 15
          bytes of .go.buildinfo, the magic and the size of a pointer (debug/buildinfo, cmd/link)
Rust      "rustc version" in .comment; /rustc/COMMIT/ in paths of panics, which strip leaves
"""

from __future__ import annotations

import re

from ftpatch.image import Image

__all__ = ["how_to_compile", "is_go"]

GO = {".go.buildinfo", ".note.go.buildid", ".gopclntab"}
GO_BUILD = re.compile(rb"\xff Go buildinf:[\x04\x08]")
RUSTC = b"rustc version "
PANICS = re.compile(rb"/rustc/[0-9a-f]{40}/")


def how_to_compile(image: Image, nops: int, *, fentry: bool) -> str:
    """Suggest how to compile such a program with a table: ``nops`` is the number a call needs,
    ``fentry`` whether compilers support -mfentry there."""
    language = _language(image)
    if language == "Go":
        return "a Go program, whose compiler leaves no call sites; use uprobes"
    if language == "Rust":
        return f"a Rust program: compile with rustc -Z patchable-function-entry={nops} (nightly)"
    return f"compile with -fpatchable-function-entry={nops}" + (
        " or -pg -mfentry -mrecord-mcount" if fentry else ""
    )


def is_go(image: Image) -> bool:
    """Test whether a program or library has Go's runtime."""
    if {section.name for section in image.elf.sections} & GO:
        return True
    if image.is_kernel or image.is_relocatable:
        return False
    return GO_BUILD.search(image.data.data) is not None


def _language(image: Image) -> str:
    if is_go(image):
        return "Go"
    comment = image.elf.section(".comment")
    if comment is not None:
        held = image.data[comment.offset : comment.offset + comment.size].tobytes()
        if RUSTC in held:
            return "Rust"
    if image.is_kernel or image.is_relocatable:
        return ""
    return "Rust" if PANICS.search(image.data.data) else ""
