/* SPDX-License-Identifier: MIT */
/* Saving and restoring registers, with unwind information. */
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
