/* SPDX-License-Identifier: MIT */
/* Injected into a shared library: its sites call the tracer of the program that loads it. As in
 * entry.S, nothing is changed but x9 and the flags. It calls nothing until the program's runtime
 * sets the address (libraries.h): in other programs never, in this one from its entry point on.
 *
 * return_to_handler is the program's. It branches to trace_entry() by `ret`, as there.
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
	.cfi_return_column x16		/* the function expects its parent in x30 */
	.cfi_register x16, x30
	.cfi_register x30, x9
	save
	adrp	x17, ftpatch_library + LIBRARY_HOOK_ENTRY
	add	x17, x17, #:lo12:ftpatch_library + LIBRARY_HOOK_ENTRY
	ldar	x16, [x17]		/* delta was written first */
	cbz	x16, 1f
	ldr	x17, [x17, #LIBRARY_HOOK_DELTA - LIBRARY_HOOK_ENTRY]
	add	x0, x30, x17		/* ip relative to the program */
	add	x1, sp, #168		/* location of the return address */
	add	x2, sp, #176		/* the slot */
	add	x3, sp, #16		/* arguments, if wanted */
	adr	x30, 1f
	ret	x16
1:
	restore
	ret	x9
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller
#ifdef ARGS
	.size	ftrace_regs_caller, . - ftrace_regs_caller
#endif
	.section .note.GNU-stack, "", @progbits
