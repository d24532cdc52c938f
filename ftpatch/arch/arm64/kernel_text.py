# SPDX-License-Identifier: MIT
"""Text that an arm64 kernel itself changes, or looks up.

A jump is one instruction, so what branches to it, or is adrp's other half, may stay. Text that runs
at EL2 (hyp), without the MMU or in the identity mapping (idmap, __pi_), from a copy
(hibernate_exit, relocate_new_kernel) or in the vectors' mapping (tramp) does not reach other text.

arch_populate_kprobe_blacklist: arch/arm64/kernel/probes/kprobes.c; sections:
arch/arm64/kernel/vmlinux.lds.S; struct alt_instr: asm/alternative.h.
"""

from __future__ import annotations

from typing import Final

from ftpatch.arch.kernel_text import KernelText, Table

__all__ = ["KERNEL_TEXT"]


KERNEL_TEXT: Final = KernelText(
    tables=(
        Table(
            begin="__alt_instructions",
            end="__alt_instructions_end",
            what="an alternative (.altinstructions)",
            rows=((12, 10),),
        ),
    ),
    areas=(
        ("__exception_text_start", "__exception_text_end"),
        ("__idmap_text_start", "__idmap_text_end"),
        ("__hyp_text_start", "__hyp_text_end"),
        ("__hyp_idmap_text_start", "__hyp_idmap_text_end"),
        ("__entry_tramp_text_start", "__entry_tramp_text_end"),
        ("__hibernate_exit_text_start", "__hibernate_exit_text_end"),
        ("__relocate_new_kernel_start", "__relocate_new_kernel_end"),
        ("__static_call_text_start", "__static_call_text_end"),
    ),
    apart=r"__kvm_nvhe_.*|__pi_.*|__efistub_.*|ftrace_caller|ftrace_regs_caller|ftrace_common",
    constant=16,  # movz and three movk
)
