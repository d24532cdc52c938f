/* SPDX-License-Identifier: MIT */
/* libfentry.so: __fentry__ in a library, so that the program calls it through its PLT. */
	.text
	.globl	__fentry__
	.type	__fentry__, @function
	.balign	16
__fentry__:
	endbr64
	ret
	.size	__fentry__, . - __fentry__

	.section .note.GNU-stack, "", @progbits
