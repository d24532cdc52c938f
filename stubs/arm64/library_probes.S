/* SPDX-License-Identifier: MIT */
/* Injected into a shared library that is probed with a program: its detours go on to the program's
 * runtime, once that has set the address (libraries.h); in other programs never. No register is free, so
 * one is put on the stack, below what is there in probes.S, and the program's ftrace_library_caller takes
 * it from there. It is reached by `ret`, which lands on no `bti`. */
	.file	"library_probes.S"
#include "offsets.h"
#include "save.h"
#include "library_hook.h"
	.cfi_sections .eh_frame, .debug_frame
	.globl	ftrace_caller, ftrace_regs_caller
	.type	ftrace_caller, @function
	.type	ftrace_regs_caller, @function
	.p2align 6
ftrace_caller:
ftrace_regs_caller:			/* mid-function: flags are not touched */
	.cfi_startproc
	stp	x16, x30, [sp, #-16]!
	.cfi_adjust_cfa_offset 16
	.cfi_rel_offset x30, 8
	adrp	x16, ftpatch_library + LIBRARY_HOOK_ENTRY
	add	x16, x16, #:lo12:ftpatch_library + LIBRARY_HOOK_ENTRY
	ldar	x16, [x16]
	cbz	x16, 1f
	ret	x16
1:	ldp	x16, x30, [sp], #16
	.cfi_adjust_cfa_offset -16
	.cfi_restore x30
	ret
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller
	.size	ftrace_regs_caller, . - ftrace_regs_caller
	.section .note.GNU-stack, "", @progbits
