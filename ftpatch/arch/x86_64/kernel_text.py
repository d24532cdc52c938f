# SPDX-License-Identifier: MIT
"""Text that an x86_64 kernel itself changes, or looks up.

    .smp_locks        f0          lock, which one processor does without
    .retpoline_sites  e8/e9 rel32 of an indirect branch's thunk
    .return_sites     e9 rel32    jmp __x86_return_thunk
    .call_sites       e8/e9 rel32 calls that call depth tracking changes
    .ibt_endbr_seal   f3 0f 1e fa endbr64 that no indirect branch needs
    .cfi_sites        what FineIBT rewrites

KASLR moves the kernel, and relocates operands that are addresses (R_X86_64_32S, R_X86_64_64) and
distances to what does not move (per-CPU variables, up to v6.14). A vmlinux seldom tells which ones
these are (arch/x86/tools/relocs.c), so they are known by their values.

arch_populate_kprobe_blacklist, can_probe: arch/x86/kernel/kprobes/core.c; sections:
arch/x86/kernel/vmlinux.lds.S; apply_*: arch/x86/kernel/alternative.c.
"""

from __future__ import annotations

from typing import Any, Final

from ftpatch.arch.disassemble import engine
from ftpatch.arch.kernel_text import KernelText, Table

__all__ = ["KERNEL_TEXT"]

MAP = 0xFFFF_FFFF_8000_0000
"""__START_KERNEL_map: an address less this, the physical one, is relocated as well."""
MARGIN = 1 << 20
"""Bytes beyond an object that an operand may have as its base (``table - 8 * first``)."""
MASK = (1 << 64) - 1
WORD = 4
"""Bytes of the smallest relocation."""
OFFSETS = ((4, 0),)
"""Rows of one distance."""


def _relocated(code: bytes, at: int, bounds: tuple[int, int]) -> str:
    """Operands that look like an address, or like a distance to what is outside of the image."""
    for insn in engine("x86_64").disasm(code, at):
        if _is_relocated(insn, bounds):
            return f"an operand of {insn.mnemonic} at {insn.address:#x}"
    return ""


def _is_relocated(insn: Any, bounds: tuple[int, int]) -> bool:  # noqa: ANN401
    import capstone
    import capstone.x86 as x86

    low, high = bounds[0] - MARGIN, bounds[1] + MARGIN
    branches = (capstone.CS_GRP_CALL, capstone.CS_GRP_JUMP, capstone.CS_GRP_BRANCH_RELATIVE)
    direct = any(insn.group(group) for group in branches)
    for operand in insn.operands:
        if operand.type == x86.X86_OP_MEM and operand.mem.base == x86.X86_REG_RIP:
            target = (insn.address + insn.size + operand.mem.disp) & MASK
            if not bounds[0] <= target < bounds[1]:
                return True
            continue
        if operand.type == x86.X86_OP_MEM:
            value, size = operand.mem.disp, insn.encoding.disp_size
        elif operand.type == x86.X86_OP_IMM and not direct:
            value, size = operand.imm, insn.encoding.imm_size
        else:
            continue
        if size >= WORD and low <= value & MASK | MAP < high:
            return True
    return False


KERNEL_TEXT: Final = KernelText(
    tables=(
        Table(
            begin="__alt_instructions",
            end="__alt_instructions_end",
            what="an alternative (.altinstructions)",
            rows=((12, 10), (13, 10), (14, 12)),
        ),
        Table(
            begin="__parainstructions",
            end="__parainstructions_end",
            what="a paravirt call (.parainstructions)",
            rows=((16, 9),),
            wide=True,
        ),
        Table(
            begin="__start_static_call_sites",
            end="__stop_static_call_sites",
            what="a static call (.static_call_sites)",
            rows=((8, 0),),
        ),
        Table(
            begin="__retpoline_sites",
            end="__retpoline_sites_end",
            what="an indirect branch's thunk (.retpoline_sites)",
            rows=OFFSETS,
        ),
        Table(
            begin="__return_sites",
            end="__return_sites_end",
            what="a return thunk (.return_sites)",
            rows=OFFSETS,
        ),
        Table(
            begin="__call_sites",
            end="__call_sites_end",
            what="a call that is tracked (.call_sites)",
            rows=OFFSETS,
        ),
        Table(
            begin="__smp_locks",
            end="__smp_locks_end",
            what="a lock prefix (.smp_locks)",
            rows=OFFSETS,
        ),
        Table(
            begin="__ibt_endbr_seal",
            end="__ibt_endbr_seal_end",
            what="an endbr that is sealed (.ibt_endbr_seal)",
            rows=OFFSETS,
        ),
        Table(
            begin="__cfi_sites",
            end="__cfi_sites_end",
            what="a call that CFI rewrites (.cfi_sites)",
            rows=OFFSETS,
        ),
    ),
    areas=(
        ("__indirect_thunk_start", "__indirect_thunk_end"),
        ("__softirqentry_text_end", "__static_call_text_start"),
        ("__static_call_text_start", "__static_call_text_end"),
    ),
    # Between the last two of them are the thunks of indirect branches and returns.
    apart=r"__SCT__.*|__x86_.*|bpf_dispatcher_.*_func|__enc_copy|core_restore_code|relocate_kernel"
    r"|identity_mapped|swap_pages|virtual_mapped|ftrace_caller|ftrace_regs_caller|__fentry__"
    r"|startup_64|secondary_startup_64.*|pvh_start_xen",
    relocated=_relocated,
    no_tables="__x86_indirect_thunk_rax",
    fill=b"\x90",  # nop
)
