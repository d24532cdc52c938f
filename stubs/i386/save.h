/* SPDX-License-Identifier: MIT */
/* Registers to the stack and back, with what unwinders have to know of it. */
	.macro	save registers:vararg
	.irp	register, \registers
	pushl	%\register
	.cfi_adjust_cfa_offset 4
	.endr
	.endm

	.macro	restore registers:vararg
	.irp	register, \registers
	popl	%\register
	.cfi_adjust_cfa_offset -4
	.endr
	.endm
