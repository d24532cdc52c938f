"""Keystone makes the bytes, Capstone reads them back.

One template is assembled per kind of instruction and read back; displacements are filled in by the
architectures, over columns. Only text from this package reaches Keystone. It has no RISC-V, whose
instructions are numbers in riscv.py.
"""

from __future__ import annotations

from functools import cache

from ftpatch.arch.disassemble import disassemble

__all__ = ["template"]

ENGINES = {"x86_64": ("KS_ARCH_X86", "KS_MODE_64"), "i386": ("KS_ARCH_X86", "KS_MODE_32")}
ENGINES["arm64"] = ("KS_ARCH_ARM64", "KS_MODE_LITTLE_ENDIAN")


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
