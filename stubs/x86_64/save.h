/* SPDX-License-Identifier: MIT */
/* Saving and restoring registers, with unwind information. */
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

/* All registers as in struct registers, except rsp, whose place is just reserved, and the two words
 * after the flags, which the caller provides. */
#define SP REGISTERS_GENERAL + 4 * 8

	.macro	save_all
	pushfq
	.cfi_adjust_cfa_offset 8
	save	r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rsp, rbx, rdx, rcx, rax
	.endm

	.macro	restore_general
	restore	rax, rcx, rdx, rbx
	leaq	8(%rsp), %rsp
	.cfi_adjust_cfa_offset -8
	restore	rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15
	.endm
