"""Keystone makes the bytes, Capstone reads them back.

One template is assembled per kind of instruction and read back; displacements are filled in by the
architectures, over columns. Only text from this package reaches Keystone. It has no RISC-V, whose
instructions are numbers in riscv.py.
"""

from __future__ import annotations

from functools import cache

from ftpatch.arch.disassemble import disassemble

__all__ = ["instruction", "template"]

ENGINES = {"x86_64": ("KS_ARCH_X86", "KS_MODE_64"), "i386": ("KS_ARCH_X86", "KS_MODE_32")}
ENGINES["arm64"] = ("KS_ARCH_ARM64", "KS_MODE_LITTLE_ENDIAN")

SUFFIXES = "bwlqd"
"""Of AT&T names, and the letters that names may end in then."""


@cache
def template(arch: str, text: str, mnemonics: tuple[str, ...], at: int = 0x10_0000) -> bytes:
    """The bytes of ``text``, assembled at address ``at``.

    ``mnemonics`` are those of its instructions as Capstone names them; another reading is a
    RuntimeError: no byte that two readers see differently gets into a file.
    """
    import keystone

    kind, mode = ENGINES[arch]
    engine = keystone.Ks(getattr(keystone, kind), getattr(keystone, mode))
    code = bytes(engine.asm(text, at)[0])
    read = tuple(insn.mnemonic for insn in disassemble(arch, code, at))
    if read != mnemonics:
        raise RuntimeError(f"{arch}: {text!r} assembles to {code.hex()}, which reads {read}")
    return code


@cache
def instruction(arch: str, text: str, at: int) -> bytes:
    """One instruction, read back as one whose name begins as it does in ``text``: Capstone's AT&T
    names have suffixes. Another reading is a RuntimeError."""
    import keystone

    kind, mode = ENGINES[arch]
    engine = keystone.Ks(getattr(keystone, kind), getattr(keystone, mode))
    code = bytes(engine.asm(text, at)[0])
    read = disassemble(arch, code, at)
    named = text.split()[0].rstrip(SUFFIXES)
    same = bool(read) and read[0].mnemonic.split()[0].rstrip(SUFFIXES) == named
    if [len(code)] != [insn.size for insn in read] or not same:
        raise RuntimeError(f"{arch}: {text!r} assembles to {code.hex()}, which reads {read}")
    return code
