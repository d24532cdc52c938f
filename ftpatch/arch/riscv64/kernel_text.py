# SPDX-License-Identifier: MIT
"""Text that a riscv64 kernel itself changes, or looks up.

Its text has 10 MB and no padding, so the code of probes is out of a `jal`'s reach. A jump to there,
and back, takes a register, and gp is free: a kernel with ftrace is linked without relaxation
(arch/riscv/Makefile), so that no code addresses anything by gp; exceptions save and restore it, and
set it anew. Where shadow call stacks are on (CONFIG_SHADOW_CALL_STACK), it points to them.

Text that runs before the MMU is on or from a copy (kexec, hibernation) does not reach other text,
and KVM's switch (__kvm_riscv_) has the guest's gp.

arch_populate_kprobe_blacklist: the common one; sections: arch/riscv/kernel/vmlinux.lds.S; struct
alt_entry: asm/alternative.h.
"""

from __future__ import annotations

from typing import Final

from ftpatch.arch.kernel_text import KernelText, Table
from ftpatch.arch.riscv64.move import FAR_MOVE

__all__ = ["KERNEL_TEXT"]


KERNEL_TEXT: Final = KernelText(
    tables=(
        Table(
            begin="__alt_start",
            end="__alt_end",
            what="an alternative (.alternative)",
            rows=((16, 10),),
        ),
    ),
    apart=r"__pi_.*|__efistub_.*|__kvm_riscv_.*|riscv_kexec_.*|hibernate_core_restore_code"
    r"|__hibernate_cpu_resume|__cpu_suspend_enter|__cpu_resume_enter|relocate_enable_mmu"
    r"|secondary_start_sbi|_start.*|arch_rethook_trampoline|return_to_handler"
    r"|ftrace_caller|ftrace_regs_caller|ftrace_stub.*",
    constant=32,  # two lui, and what joins them
    mover=FAR_MOVE,
    taken=("scs_alloc", "a jump takes gp, which is this kernel's shadow call stack"),
)
