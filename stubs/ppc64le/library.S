/* SPDX-License-Identifier: MIT */
/* Injected into a shared library: its sites call the tracer of the program that loads it. As in
 * entry.S, registers that arguments are in keep their values. It calls nothing until the program's
 * runtime sets the address (libraries.h): in other programs never, in this one from its entry point on.
 *
 * return_to_handler is the program's. trace_entry() is called by its global entry, which makes r2 of r12.
 */

	.file	"library.S"
#include "offsets.h"
#include "save.h"
#include "library_hook.h"
	.abiversion 2
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
	mr	3, 0			/* ip */
	bcl	20, 31, 1f		/* is no call to branch prediction */
1:	mflr	7
	addis	7, 7, (ftpatch_library + LIBRARY_HOOK_ENTRY - 1b)@ha
	addi	7, 7, (ftpatch_library + LIBRARY_HOOK_ENTRY - 1b)@l
	ld	12, 0(7)
	cmpdi	12, 0
	beq	2f
	lwsync				/* delta was written first */
	ld	8, LIBRARY_HOOK_DELTA - LIBRARY_HOOK_ENTRY(7)
	add	3, 3, 8			/* relative to the program */
	addi	4, 1, SAVED_PARENT	/* location of the return address */
	addi	5, 1, SAVED		/* the slot */
	addi	6, 1, SAVED_ARGUMENTS	/* arguments, if wanted */
	mtctr	12
	bctrl
2:
	restore
	bctr
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller
#ifdef ARGS
	.size	ftrace_regs_caller, . - ftrace_regs_caller
#endif
	.section .note.GNU-stack, "", @progbits
