/* What is laid into a shared library: its sites call the tracer of the program that loads it. As in
 * entry.S, nothing but the flags is changed. Nobody is called until the program's runtime says whom
 * (libraries.h): in other programs never, in this one from its entry point on.
 *
 * return_to_handler is the program's.
 */

	.file	"library.S"
#include "save.h"
	.cfi_sections .eh_frame, .debug_frame
	.text
	.globl	ftrace_caller
	.type	ftrace_caller, @function
	.p2align 6
ftrace_caller:
	.cfi_startproc
	cmpq	$0, entry(%rip)
	je	1f
	save	rdi, rsi, rdx
	movq	24(%rsp), %rdi		/* ip */
	addq	delta(%rip), %rdi	/* ... as the program counts */
	leaq	32(%rsp), %rsi		/* where the return address stands */
	movq	%rsi, %rdx		/* which is the slot */
	notrack call *entry(%rip)
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
	cmpq	$0, entry(%rip)
	je	1f
	save	r9, r8, rcx, rdx, rsi, rdi
	movq	48(%rsp), %rdi		/* ip */
	addq	delta(%rip), %rdi
	leaq	56(%rsp), %rsi
	movq	%rsi, %rdx
	movq	%rsp, %rcx
	notrack call *entry(%rip)
	restore	rdi, rsi, rdx, rcx, r8, r9
1:	ret
	.cfi_endproc
	.size	ftrace_regs_caller, . - ftrace_regs_caller
#endif

/* struct library_hook */
	.data
	.p2align 4
	.globl	ftpatch_library
	.type	ftpatch_library, @object
ftpatch_library:
	.ascii	"FTPATCHLIB\0v1\0\0\0"
	.skip	32			/* image_id */
entry:	.quad	0
delta:	.quad	0
	.size	ftpatch_library, . - ftpatch_library
	.section .note.GNU-stack, "", @progbits
