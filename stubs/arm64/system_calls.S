/* SPDX-License-Identifier: MIT */
/* From the stub of a system call: `struct asked`, and all else that C functions may change. The answer
 * to `done` is in x16, which the stub has saved, as x30. */
	.file	"system_calls.S"
	.cfi_sections .eh_frame, .debug_frame
	.text
	.globl	ftrace_asked
	.type	ftrace_asked, @function
	.p2align 4
ftrace_asked:
	.cfi_startproc
	hint	#34			/* bti c */
	sub	sp, sp, #176
	.cfi_adjust_cfa_offset 176
	stp	x8, x0, [sp, #0]
	stp	x1, x2, [sp, #16]
	stp	x3, x4, [sp, #32]
	stp	x5, xzr, [sp, #48]
	stp	x30, x6, [sp, #64]
	.cfi_rel_offset x30, 64
	stp	x7, x9, [sp, #80]
	stp	x10, x11, [sp, #96]
	stp	x12, x13, [sp, #112]
	stp	x14, x15, [sp, #128]
	stp	x17, x18, [sp, #144]
	mrs	x0, nzcv
	str	x0, [sp, #160]
	mov	x0, sp
	bl	signal_asked
	ldr	x0, [sp, #160]
	msr	nzcv, x0
	ldp	x8, x0, [sp, #0]
	ldp	x1, x2, [sp, #16]
	ldp	x3, x4, [sp, #32]
	ldp	x5, x16, [sp, #48]
	ldp	x30, x6, [sp, #64]
	.cfi_restore x30
	ldp	x7, x9, [sp, #80]
	ldp	x10, x11, [sp, #96]
	ldp	x12, x13, [sp, #112]
	ldp	x14, x15, [sp, #128]
	ldp	x17, x18, [sp, #144]
	add	sp, sp, #176
	.cfi_adjust_cfa_offset -176
	ret
	.cfi_endproc
	.size	ftrace_asked, . - ftrace_asked
	.section .note.GNU-stack, "", @progbits
