/* SPDX-License-Identifier: MIT */
/* Injected into a shared library: its sites call the tracer of the program that loads it. As in
 * entry.S, nothing is changed but the flags. It calls nothing until the program's runtime sets the address
 * (libraries.h): in other programs never, in this one from its entry point on.
 *
 * return_to_handler is the program's.
 */

	.file	"library.S"
#include "offsets.h"
#include "save.h"
	.syntax	unified
	.arm
#include "library_hook.h"
	.cfi_sections .debug_frame
	.globl	ftrace_caller
	.type	ftrace_caller, %function
#ifdef ARGS
	.globl	ftrace_regs_caller
	.type	ftrace_regs_caller, %function
#endif
	.p2align 6
ftrace_caller:
#ifdef ARGS
ftrace_regs_caller:			/* arguments are always readable */
#endif
	.fnstart
	.cfi_startproc
	entered
	save
	movw	ip, #:lower16:(ftpatch_library - (1f + 8))
	movt	ip, #:upper16:(ftpatch_library - (1f + 8))
1:	add	ip, pc, ip
	bic	r0, lr, #1
	ldr	lr, [ip, #LIBRARY_HOOK_ENTRY]
	cmp	lr, #0
	beq	2f
	dmb	ish			/* delta was written first */
	ldr	r1, [ip, #LIBRARY_HOOK_DELTA]
	add	r0, r0, r1		/* ip relative to the program */
	add	r1, sp, #SAVED_PARENT	/* location of the return address */
	add	r2, sp, #SAVED		/* the slot */
	mov	r3, sp			/* arguments, if wanted */
	blx	lr
2:
	restore
	.cfi_endproc
	.fnend
	.size	ftrace_caller, . - ftrace_caller
#ifdef ARGS
	.size	ftrace_regs_caller, . - ftrace_regs_caller
#endif
	.globl	__aeabi_unwind_cpp_pr0, __aeabi_unwind_cpp_pr1
	.hidden	__aeabi_unwind_cpp_pr0, __aeabi_unwind_cpp_pr1
__aeabi_unwind_cpp_pr0:
__aeabi_unwind_cpp_pr1:
	.section .note.GNU-stack, "", %progbits
