/* SPDX-License-Identifier: MIT */
/* Injected into a shared library that is probed with a program: its detours go on to the program's
 * runtime, once that has set the address (libraries.h); in other programs never. No register is free, so
 * t1 is put on the stack, below what is there in probes.S, and the program's ftrace_library_caller takes
 * it from there. */
	.file	"library_probes.S"
#include "offsets.h"
#include "library_hook.h"
	.cfi_sections .eh_frame, .debug_frame
	.globl	ftrace_caller, ftrace_regs_caller
	.type	ftrace_caller, @function
	.type	ftrace_regs_caller, @function
	.p2align 6
ftrace_caller:
ftrace_regs_caller:			/* mid-function: there are no flags */
	.cfi_startproc
	addi	sp, sp, -16
	.cfi_adjust_cfa_offset 16
	sd	t1, 0(sp)
	lla	t1, ftpatch_library + LIBRARY_HOOK_ENTRY
	ld	t1, 0(t1)
	beqz	t1, 1f
	fence	r, r			/* what it leads to was written first */
	jr	t1
1:	ld	t1, 0(sp)
	addi	sp, sp, 16
	.cfi_adjust_cfa_offset -16
	ret
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller
	.size	ftrace_regs_caller, . - ftrace_regs_caller
	.section .note.GNU-stack, "", @progbits
