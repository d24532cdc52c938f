# SPDX-License-Identifier: MIT
"""Keystone and Capstone, used apart from ftpatch's own wrappers."""

from __future__ import annotations

from typing import Any

import capstone
import keystone

__all__ = ["assembled", "disassembled", "target_of"]

CAPSTONE = {
    "x86_64": (capstone.CS_ARCH_X86, capstone.CS_MODE_64),
    "i386": (capstone.CS_ARCH_X86, capstone.CS_MODE_32),
    "arm64": (capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM),
    "riscv64": (capstone.CS_ARCH_RISCV, capstone.CS_MODE_RISCV64 | capstone.CS_MODE_RISCVC),
    "s390x": (capstone.CS_ARCH_SYSZ, capstone.CS_MODE_BIG_ENDIAN),
    "ppc64le": (capstone.CS_ARCH_PPC, capstone.CS_MODE_64 | capstone.CS_MODE_LITTLE_ENDIAN),
    "arm": (capstone.CS_ARCH_ARM, capstone.CS_MODE_ARM),
    "thumb": (capstone.CS_ARCH_ARM, capstone.CS_MODE_THUMB),
}
KEYSTONE = {
    "x86_64": (keystone.KS_ARCH_X86, keystone.KS_MODE_64),
    "i386": (keystone.KS_ARCH_X86, keystone.KS_MODE_32),
    "arm64": (keystone.KS_ARCH_ARM64, keystone.KS_MODE_LITTLE_ENDIAN),
    "ppc64le": (keystone.KS_ARCH_PPC, keystone.KS_MODE_PPC64 | keystone.KS_MODE_LITTLE_ENDIAN),
}


def assembled(arch: str, text: str, address: int) -> bytes:
    """Keystone's bytes."""
    return bytes(keystone.Ks(*KEYSTONE[arch]).asm(text, address)[0])


def disassembled(arch: str, code: bytes, address: int) -> list[Any]:
    """Capstone's instructions."""
    engine = capstone.Cs(*CAPSTONE[arch])
    engine.detail = True
    return list(engine.disasm(code, address))


def target_of(instruction: Any) -> int:  # noqa: ANN401 - Capstone has no types
    """Where a direct branch goes."""
    (operand,) = instruction.operands
    assert operand.type == capstone.CS_OP_IMM
    return int(operand.imm) & 0xFFFF_FFFF_FFFF_FFFF
