/* SPDX-License-Identifier: MIT */
/* Injected into a shared library: its sites call the tracer of the program that loads it. As in
 * entry.S, nothing is changed but r1. It calls nothing until the program's runtime sets the address
 * (libraries.h): in other programs never, in this one from its entry point on.
 *
 * return_to_handler is the program's.
 */

	.file	"library.S"
#include "offsets.h"
#include "save.h"
#include "library_hook.h"
	.cfi_sections .eh_frame, .debug_frame
	.globl	ftrace_caller
	.type	ftrace_caller, @function
#ifdef ARGS
	.globl	ftrace_regs_caller
	.type	ftrace_regs_caller, @function
#endif
	.p2align 6
ftrace_caller:
#ifdef ARGS
ftrace_regs_caller:			/* arguments are always readable */
#endif
	.cfi_startproc
	entered
	save
	lgr	%r2, %r1			/* ip */
	larl	%r1, ftpatch_library
	ltg	%r14, LIBRARY_HOOK_ENTRY(%r1)
	je	1f
	ag	%r2, LIBRARY_HOOK_DELTA(%r1)	/* relative to the program; was written first */
	la	%r3, SAVED_PARENT(%r15)		/* location of the return address */
	la	%r4, SAVED(%r15)		/* the slot */
	la	%r5, SAVED_ARGUMENTS(%r15)	/* arguments, if wanted */
	basr	%r14, %r14
1:
	restore
	br	%r1
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller
#ifdef ARGS
	.size	ftrace_regs_caller, . - ftrace_regs_caller
#endif
	.section .note.GNU-stack, "", @progbits
