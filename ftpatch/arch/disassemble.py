# SPDX-License-Identifier: MIT
"""Capstone: bytes to the text that people read."""

from __future__ import annotations

from functools import cache
from typing import Any

from ftpatch.arch import arch_named, feature
from ftpatch.arch.instruction_set import instruction_set
from ftpatch.arch.instructions import Instruction, Read
from ftpatch.errors import InputError

__all__ = ["Instruction", "disassemble", "engine"]

UNGROUPED = {"bras", "brasl"}
"""Calls of z/Architecture, which Capstone 5 does not count among them."""
NEVER = {"brc", "brcl"}
"""Its branches whose first operand, a mask, is printed for those that are never taken."""
SUFFIXED = {"callq", "calll", "jmpq", "jmpl"}
"""Branches that Capstone prints with a suffix; objdump since 2.38 prints none."""


@cache
def engine(arch: str, mode: str = "") -> Any:  # noqa: ANN401 - Capstone has no types
    """Capstone for an architecture by name, with details; ``mode``: another one than that of the
    architecture. Cached. Raises InputError if it lacks the architecture."""
    import capstone

    if not arch_named(arch).capstone:
        raise InputError(None, f"Capstone does not have {arch}")
    kind, *modes = arch_named(arch).capstone
    modes = [mode] if mode else modes
    reader = capstone.Cs(getattr(capstone, kind), sum(getattr(capstone, mode) for mode in modes))
    reader.detail = True
    if kind == "CS_ARCH_X86":
        reader.syntax = capstone.CS_OPT_SYNTAX_ATT
    return reader


def disassemble(arch: str, code: bytes, address: int) -> list[Instruction]:
    """Disassemble ``code`` at ``address``, up to the first invalid byte. Bit 0 of the address says
    that it is in the second instruction set; without, the code of a site can tell."""
    if not arch_named(arch).capstone:
        read: Read = feature(arch, "instructions")
        return read(code, address)
    from capstone import CS_ARCH_RISCV as RISCV

    second = instruction_set(arch)
    thumb = second.mode if second is not None and (address % 2 or second.holds(code)) else ""
    address -= address % 2 if thumb else 0
    reader, top = engine(arch, thumb), (1 << arch_named(arch).elf_class) - 1
    insns = list(reader.disasm(code, address))
    out: list[Instruction] = []
    for before, insn in zip([None, *insns], insns, strict=False):
        if before is not None and (call := _pair(before, insn)):
            out[-1:] = [call]
        else:
            out.append(_instruction(insn, relative=reader.arch == RISCV, top=top))
    return out


def _pair(auipc: Any, jalr: Any) -> Instruction | None:  # noqa: ANN401
    """auipc rd, high; jalr rd, low(rd), as one instruction."""
    if (auipc.mnemonic, jalr.mnemonic) != ("auipc", "jalr"):
        return None
    link, high = auipc.operands
    name = auipc.reg_name(link.reg)
    *registers, low = [op.imm if op.type == 2 else op.reg for op in jalr.operands]  # CS_OP_IMM
    if len(jalr.operands) == 1:  # jalr ra is jalr ra, ra, 0
        registers, low = [low if name == "ra" else 0], 0
    if set(registers) != {link.reg}:
        return None
    # Capstone 5 returns the upper 20 bits unsigned.
    distance = ((high.imm << 12 ^ 1 << 31) & 0xFFFF_FFFF) - (1 << 31) + low
    target = (auipc.address + distance) & 0xFFFF_FFFF_FFFF_FFFF
    mnemonic = "call" if name == "ra" else f"call {name},"
    return Instruction(auipc.address, auipc.size + jalr.size, mnemonic, hex(target), target)


def _instruction(insn: Any, *, relative: bool, top: int) -> Instruction:  # noqa: ANN401
    """``relative``: Capstone returns distances, jalr's from a register. ``top``: the last
    address."""
    import capstone

    branches = (capstone.CS_GRP_CALL, capstone.CS_GRP_JUMP, capstone.CS_GRP_BRANCH_RELATIVE)
    target = None
    call = insn.mnemonic in UNGROUPED
    if insn.mnemonic not in NEVER and (call or any(insn.group(group) for group in branches)):
        # CS_OP_IMM is 2 on every architecture of Capstone 5. In tbz, a bit number precedes it.
        immediates = [op.imm for op in insn.operands if op.type == capstone.CS_OP_IMM]
        target = immediates[-1] if immediates else None
        if target is not None and relative:
            target = None if insn.mnemonic == "jalr" else insn.address + target
        target = None if target is None else target & top
    mnemonic, operands = insn.mnemonic, insn.op_str
    if call:
        mnemonic += f" {operands.partition(',')[0]},"
    if mnemonic in SUFFIXED:
        mnemonic = mnemonic[:-1]
    if mnemonic.startswith(("nop", "lea")):
        operands = _gnu_memory(insn, operands)
    return Instruction(insn.address, insn.size, mnemonic, operands, target)


def _gnu_memory(insn: Any, operands: str) -> str:  # noqa: ANN401
    """Format a memory operand like objdump: ``0x0(%rax,%rax,1)``.

    Capstone omits an encoded displacement of zero, and a scale of one; a NOP5 and a NOP3 would look
    the same.
    """
    import capstone.x86 as x86

    texts = []
    for op in insn.operands:
        if op.type == x86.X86_OP_MEM:
            base, index = (f"%{insn.reg_name(r)}" if r else "" for r in (op.mem.base, op.mem.index))
            inner = base + (f",{index or '%eiz'},{op.mem.scale}" if index else "")
            disp = op.mem.disp
            shown = hex(disp) if disp or insn.disp_size else ""
            segment = f"%{insn.reg_name(op.mem.segment)}:" if op.mem.segment else ""
            texts.append(f"{segment}{shown}({inner})")
        elif op.type == x86.X86_OP_REG:
            texts.append(f"%{insn.reg_name(op.reg)}")
    return ",".join(texts) if texts else operands
