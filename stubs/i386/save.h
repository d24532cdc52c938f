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

/* All registers as in struct registers, except esp, whose place is just reserved, and the two words
 * after the flags, which the caller provides. */
#define SP REGISTERS_GENERAL + 4 * 4

	.macro	save_all
	pushfl
	.cfi_adjust_cfa_offset 4
	save	edi, esi, ebp, esp, ebx, edx, ecx, eax
	.endm

	.macro	restore_general
	restore	eax, ecx, edx, ebx
	leal	4(%esp), %esp
	.cfi_adjust_cfa_offset -4
	restore	ebp, esi, edi
	.endm
