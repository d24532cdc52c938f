/* SPDX-License-Identifier: MIT */
/* Injected into a shared library: its sites call the tracer of the program that loads it. As in
 * entry.S, nothing is changed but $t0. It calls nothing until the program's runtime sets the address
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
	la.pcrel	$t1, ftpatch_library + LIBRARY_HOOK_ENTRY
	ld.d	$t2, $t1, 0
	beqz	$t2, 1f
	dbar	0			/* delta was written first */
	ld.d	$t1, $t1, LIBRARY_HOOK_DELTA - LIBRARY_HOOK_ENTRY
	add.d	$a0, $ra, $t1		/* ip relative to the program */
	addi.d	$a1, $sp, SAVED_PARENT	/* location of the return address */
	addi.d	$a2, $sp, SAVED		/* the slot */
	move	$a3, $sp		/* arguments, if wanted */
	jirl	$ra, $t2, 0
1:
	restore
	jr	$t0
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller
#ifdef ARGS
	.size	ftrace_regs_caller, . - ftrace_regs_caller
#endif
	.section .note.GNU-stack, "", @progbits
