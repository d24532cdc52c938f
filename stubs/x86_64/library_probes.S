/* SPDX-License-Identifier: MIT */
/* Injected into a shared library that is probed with a program: its detours go on to the program's
 * runtime, once that has set the addresses (libraries.h); in other programs never. Nothing is changed,
 * but the flags where a function is entered. The stack is as in probes.S. */
	.file	"library_probes.S"
#include "offsets.h"
#include "save.h"
#include "library_hook.h"
	.cfi_sections .eh_frame, .debug_frame
	.globl	ftrace_caller
	.type	ftrace_caller, @function
	.p2align 6
ftrace_caller:
	.cfi_startproc
	cmpq	$0, ftpatch_library + LIBRARY_HOOK_ENTRY(%rip)
	je	1f
	notrack jmp *ftpatch_library + LIBRARY_HOOK_ENTRY(%rip)
1:	ret
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller

	.globl	ftrace_regs_caller
	.type	ftrace_regs_caller, @function
	.p2align 6
ftrace_regs_caller:			/* mid-function */
	.cfi_startproc
	save	rcx
	movq	ftpatch_library + LIBRARY_HOOK_DELTA(%rip), %rcx
	jrcxz	1f
	restore	rcx
	notrack jmp *ftpatch_library + LIBRARY_HOOK_DELTA(%rip)
	.cfi_adjust_cfa_offset 8
1:	restore	rcx
	ret
	.cfi_endproc
	.size	ftrace_regs_caller, . - ftrace_regs_caller
	.section .note.GNU-stack, "", @progbits
