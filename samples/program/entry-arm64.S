/* SPDX-License-Identifier: MIT */
/*
 * arm64: a site is `mov x9, x30; bl ftrace_caller`, so x9 is the function's own LR and x30 the
 * way back to it. ftrace_caller counts its calls and preserves every register but x9 and x10,
 * which no caller of a function may count on, and the flags.
 */
#include "bti-note.h"
	.text
	.globl	ftrace_caller
	.type	ftrace_caller, %function
	.balign	16
ftrace_caller:
	hint	#34				// bti c
	stp	x11, x12, [sp, #-16]!
	adrp	x10, ftrace_calls
	add	x10, x10, :lo12:ftrace_calls
1:	ldxr	x11, [x10]
	add	x11, x11, #1			// not adds: the flags stay
	stxr	w12, x11, [x10]
	cbnz	w12, 1b
	ldp	x11, x12, [sp], #16
	mov	x10, x30
	mov	x30, x9
	ret	x10				// not br: no landing pad behind a site
	.size	ftrace_caller, . - ftrace_caller

	.bss
	.globl	ftrace_calls
	.hidden	ftrace_calls
	.type	ftrace_calls, %object
	.balign	64				// a line of its own, away from code
ftrace_calls:
	.skip	64
	.size	ftrace_calls, 8

	.section .note.GNU-stack, "", %progbits
	BTI_NOTE
