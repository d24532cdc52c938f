/* SPDX-License-Identifier: MIT */
/* Injected into a shared library: its sites call the tracer of the program that loads it. As in
 * entry.S, nothing but the flags is changed. It calls nothing until the program's runtime sets the
 * address (libraries.h): in other programs never, in this one from its entry point on.
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
	save	eax, edx, ecx
	call	1f
	.cfi_adjust_cfa_offset 4
1:	popl	%ecx
	.cfi_adjust_cfa_offset -4
	addl	$ftpatch_library - 1b, %ecx
	cmpl	$0, LIBRARY_HOOK_ENTRY(%ecx)
	je	3f
	movl	12(%esp), %eax		/* ip */
	leal	16(%esp), %edx		/* location of the return address */
	cmpb	$0x59, (%eax)		/* popl %ecx, as in entry.S */
	jne	2f
	addl	$4, %edx
2:
	addl	LIBRARY_HOOK_DELTA(%ecx), %eax	/* ip relative to the program */
	pushl	LIBRARY_HOOK_ENTRY(%ecx)
	.cfi_adjust_cfa_offset 4
#ifdef ARGS
	leal	4(%edx), %ecx		/* arguments */
	pushl	%ecx
	.cfi_adjust_cfa_offset 4
	movl	%edx, %ecx		/* which is the slot */
	notrack call *4(%esp)
	addl	$8, %esp
	.cfi_adjust_cfa_offset -8
#else
	movl	%edx, %ecx		/* which is the slot */
	notrack call *(%esp)
	addl	$4, %esp
	.cfi_adjust_cfa_offset -4
#endif
3:
	restore	ecx, edx, eax
	ret
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller
#ifdef ARGS
	.size	ftrace_regs_caller, . - ftrace_regs_caller
#endif
	.section .note.GNU-stack, "", @progbits
