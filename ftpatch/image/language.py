# SPDX-License-Identifier: MIT
"""Source language of a program, where it decides about compiler options.

Go        sections .go.buildinfo, .note.go.buildid, .gopclntab (debug/buildinfo, cmd/link)
Rust      "rustc version" in .comment; /rustc/COMMIT/ in paths of panics, which strip leaves
"""

from __future__ import annotations

import re

from ftpatch.image import Image

__all__ = ["how_to_compile"]

GO = {".go.buildinfo", ".note.go.buildid", ".gopclntab"}
GO_BUILD = re.compile(rb"\xff Go buildinf:")
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


def _language(image: Image) -> str:
    if {section.name for section in image.elf.sections} & GO:
        return "Go"
    comment = image.elf.section(".comment")
    if comment is not None:
        held = image.data[comment.offset : comment.offset + comment.size].tobytes()
        if RUSTC in held:
            return "Rust"
    if image.is_kernel or image.is_relocatable:
        return ""
    if GO_BUILD.search(image.data.data):
        return "Go"
    return "Rust" if PANICS.search(image.data.data) else ""
