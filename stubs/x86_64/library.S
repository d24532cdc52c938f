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
	.p2align 6
ftrace_caller:
	.cfi_startproc
	cmpq	$0, ftpatch_library + LIBRARY_HOOK_ENTRY(%rip)
	je	1f
	save	rdi, rsi, rdx
	movq	24(%rsp), %rdi		/* ip */
	addq	ftpatch_library + LIBRARY_HOOK_DELTA(%rip), %rdi	/* ... relative to the program */
	leaq	32(%rsp), %rsi		/* location of the return address */
	movq	%rsi, %rdx		/* which is the slot */
	notrack call *ftpatch_library + LIBRARY_HOOK_ENTRY(%rip)
	restore	rdx, rsi, rdi
1:	ret
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller

#ifdef ARGS
	.globl	ftrace_regs_caller
	.type	ftrace_regs_caller, @function
	.p2align 6
ftrace_regs_caller:
	.cfi_startproc
	cmpq	$0, ftpatch_library + LIBRARY_HOOK_ENTRY(%rip)
	je	1f
	save	r9, r8, rcx, rdx, rsi, rdi
	movq	48(%rsp), %rdi		/* ip */
	addq	ftpatch_library + LIBRARY_HOOK_DELTA(%rip), %rdi
	leaq	56(%rsp), %rsi
	movq	%rsi, %rdx
	movq	%rsp, %rcx
	notrack call *ftpatch_library + LIBRARY_HOOK_ENTRY(%rip)
	restore	rdi, rsi, rdx, rcx, r8, r9
1:	ret
	.cfi_endproc
	.size	ftrace_regs_caller, . - ftrace_regs_caller
#endif
	.section .note.GNU-stack, "", @progbits
