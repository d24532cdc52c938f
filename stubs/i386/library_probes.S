/* SPDX-License-Identifier: MIT */
/* Injected into a shared library that is probed with a program: its detours go on to the program's
 * runtime, once that has set the addresses (libraries.h); in other programs never. Nothing is changed.
 * The stack is as in probes.S. */
	.file	"library_probes.S"
#include "offsets.h"
#include "save.h"
#include "library_hook.h"
	.cfi_sections .eh_frame, .debug_frame
	.macro	handed_on name, address
	.globl	\name
	.type	\name, @function
	.p2align 6
\name:
	.cfi_startproc
	save	ecx
	call	1f
	.cfi_adjust_cfa_offset 4
1:	popl	%ecx
	.cfi_adjust_cfa_offset -4
	movl	ftpatch_library + \address - 1b(%ecx), %ecx
	jecxz	2f
	xchgl	%ecx, (%esp)
	ret				/* to the address: no register is free */
2:	restore	ecx
	ret
	.cfi_endproc
	.size	\name, . - \name
	.endm

	handed_on ftrace_caller, LIBRARY_HOOK_ENTRY
	handed_on ftrace_regs_caller, LIBRARY_HOOK_DELTA	/* mid-function */
	.section .note.GNU-stack, "", @progbits
