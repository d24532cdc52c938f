/* SPDX-License-Identifier: MIT */
/*
 * i386: ftrace_caller counts its calls and preserves every register and the flags.
 * __fentry__ and mcount are what -pg calls, with and without -mfentry.
 */
	.text
	.globl	ftrace_caller
	.type	ftrace_caller, @function
	.balign	16
ftrace_caller:
	pushfl
	pushl	%eax
	call	1f				/* position-independent */
1:	popl	%eax
	lock incl ftrace_calls - 1b(%eax)
	popl	%eax
	popfl
	ret
	.size	ftrace_caller, . - ftrace_caller

	.globl	__fentry__
	.type	__fentry__, @function
	.balign	16
__fentry__:
	ret
	.size	__fentry__, . - __fentry__

	.globl	mcount
	.type	mcount, @function
	.balign	16
mcount:
	ret
	.size	mcount, . - mcount

	.bss
	.globl	ftrace_calls
	.hidden	ftrace_calls
	.type	ftrace_calls, @object
	.balign	64				/* a line of its own, away from code */
ftrace_calls:
	.skip	64
	.size	ftrace_calls, 4

	.section .note.GNU-stack, "", @progbits
