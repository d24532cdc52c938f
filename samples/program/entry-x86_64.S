/* SPDX-License-Identifier: MIT */
/*
 * x86-64: ftrace_caller counts its calls and preserves every register and the flags.
 * __fentry__ is what -mfentry calls: nothing, so that libc's gmon is not needed.
 */
	.text
	.globl	ftrace_caller
	.type	ftrace_caller, @function
	.balign	16
ftrace_caller:
	endbr64
	pushfq
	lock incq ftrace_calls(%rip)
	popfq
	ret
	.size	ftrace_caller, . - ftrace_caller

#ifndef NO_FENTRY
	.globl	__fentry__
	.type	__fentry__, @function
	.balign	16
__fentry__:
	endbr64
	ret
	.size	__fentry__, . - __fentry__
#endif

	.bss
	.globl	ftrace_calls
	.hidden	ftrace_calls
	.type	ftrace_calls, @object
	.balign	64				# a line of its own, away from code
ftrace_calls:
	.skip	64
	.size	ftrace_calls, 8

	.section .note.GNU-stack, "", @progbits
	.section .note.gnu.property, "a"
	.balign	8
	.long	4, 16, 5			# name, descriptor, NT_GNU_PROPERTY_TYPE_0
	.asciz	"GNU"
	.long	0xc0000002, 4, 3, 0		# FEATURE_1_AND: IBT, SHSTK
