# SPDX-License-Identifier: MIT
"""Keystone makes the bytes, or the architecture's own assembler; Capstone reads them back.

One template is assembled per kind of instruction and read back; displacements are filled in by the
architectures, over columns. Only text from this package reaches Keystone.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ftpatch.arch import arch_named, feature, supports
from ftpatch.arch.assembler import Assembler
from ftpatch.arch.disassemble import disassemble

__all__ = ["instruction", "template"]

SUFFIXES = "bwlqd"
"""Suffixes of AT&T mnemonics."""


@cache
def template(arch: str, text: str, mnemonics: tuple[str, ...], at: int = 0x10_0000) -> bytes:
    """Assemble ``text`` at address ``at``.

    ``mnemonics`` are those of its instructions as Capstone names them; a different disassembly is a
    RuntimeError: no byte that the two libraries read differently gets into a file.
    """
    code = bytes(_engine(arch).asm(text, at)[0])
    read = tuple(insn.mnemonic for insn in disassemble(arch, code, at))
    if read != mnemonics:
        raise RuntimeError(f"{arch}: {text!r} assembles to {code.hex()}, which reads {read}")
    return code


@cache
def instruction(arch: str, text: str, at: int) -> bytes:
    """Assemble one instruction, and check that its disassembly starts with the same mnemonic as
    ``text``: Capstone's AT&T names have suffixes. A different one is a RuntimeError."""
    suffixes = SUFFIXES
    if supports(arch, "assembler"):
        assembler: Assembler = feature(arch, "assembler")
        code, suffixes = assembler(text, at), ""
    else:
        code = bytes(_engine(arch).asm(text, at)[0])
    read = disassemble(arch, code, at)
    named = text.split()[0].rstrip(suffixes)
    same = bool(read) and read[0].mnemonic.split()[0].rstrip(suffixes) == named
    if [len(code)] != [insn.size for insn in read] or not same:
        raise RuntimeError(f"{arch}: {text!r} assembles to {code.hex()}, which reads {read}")
    return code


@cache
def _engine(arch: str) -> Any:  # noqa: ANN401 - Keystone has no types
    import keystone

    kind, *modes = arch_named(arch).keystone
    return keystone.Ks(getattr(keystone, kind), sum(getattr(keystone, mode) for mode in modes))
