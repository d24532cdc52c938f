/* Registers to the stack and back, with what unwinders have to know of it. */
	.macro	save registers:vararg
	.irp	register, \registers
	pushq	%\register
	.cfi_adjust_cfa_offset 8
	.endr
	.endm

	.macro	restore registers:vararg
	.irp	register, \registers
	popq	%\register
	.cfi_adjust_cfa_offset -8
	.endr
	.endm
