/* SPDX-License-Identifier: MIT */
/* Injected into a shared library that is probed with a program: its detours go on to the program's
 * runtime, once that has set the address (libraries.h); in other programs never. No register is free, so
 * r14 is put on the stack, below what is there in probes.S, and the program's ftrace_library_caller takes
 * it from there. None of this changes the condition code. */
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
ftrace_regs_caller:
	.cfi_startproc
	entered
	.cfi_def_cfa_offset 16 + ROOM
	lay	%r15, -16(%r15)
	.cfi_adjust_cfa_offset 16
	stg	%r14, 0(%r15)
	.cfi_rel_offset %r14, 0
	larl	%r14, ftpatch_library
	lg	%r14, LIBRARY_HOOK_ENTRY(%r14)
	cgije	%r14, 0, 1f
	br	%r14
1:	lg	%r14, 0(%r15)
	.cfi_same_value %r14
	la	%r15, 16(%r15)
	.cfi_adjust_cfa_offset -16
	br	%r1
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller
	.size	ftrace_regs_caller, . - ftrace_regs_caller
	.section .note.GNU-stack, "", @progbits
