/* SPDX-License-Identifier: MIT */
/* What ftrace_caller keeps, of a program and of a library: all that a function's entry may use.
 *
 *     | x29, ip | x0 ... x8, x10 ... x17 | x29, parent | ...
 *       ^ sp      ^ 16                     ^ 160         ^ 176, the slot
 *
 * with two frame records: ftrace_caller's, and one of the function that was entered. */
	.macro	each pair, one
	\pair	x0, x1, [sp, #16]
	\pair	x2, x3, [sp, #32]
	\pair	x4, x5, [sp, #48]
	\pair	x6, x7, [sp, #64]
	\pair	x8, x10, [sp, #80]
	\pair	x11, x12, [sp, #96]
	\pair	x13, x14, [sp, #112]
	\pair	x15, x16, [sp, #128]
	\one	x17, [sp, #144]
	.endm

	.macro	save
	stp	x29, x9, [sp, #-16]!
	.cfi_adjust_cfa_offset 16
	.cfi_rel_offset x29, 0
	.cfi_rel_offset x30, 8
	mov	x29, sp
	stp	x29, x30, [sp, #-160]!
	.cfi_adjust_cfa_offset 160
	.cfi_rel_offset x16, 8
	mov	x29, sp
	each	stp, str
	.endm

	.macro	restore
	each	ldp, ldr
	ldr	x9, [sp, #8]
	.cfi_register x16, x9
	add	sp, sp, #160
	.cfi_adjust_cfa_offset -160
	ldp	x29, x30, [sp], #16
	.cfi_adjust_cfa_offset -16
	.cfi_same_value x29
	.cfi_same_value x30
	.endm

/* Registers as struct registers has them, or with another place of the flags, but for x29, x30 and sp,
 * which callers bring. */
#define X(n) REGISTERS_X + 8 * n

	.macro	save_all flags=REGISTERS_FLAGS
	stp	x0, x1, [sp, #0]
	stp	x2, x3, [sp, #16]
	stp	x4, x5, [sp, #32]
	stp	x6, x7, [sp, #48]
	stp	x8, x9, [sp, #64]
	stp	x10, x11, [sp, #80]
	stp	x12, x13, [sp, #96]
	stp	x14, x15, [sp, #112]
	stp	x16, x17, [sp, #128]
	stp	x18, x19, [sp, #144]
	stp	x20, x21, [sp, #160]
	stp	x22, x23, [sp, #176]
	stp	x24, x25, [sp, #192]
	stp	x26, x27, [sp, #208]
	str	x28, [sp, #224]
	mrs	x0, nzcv
	str	x0, [sp, #\flags]
	.endm

	.macro	restore_all flags=REGISTERS_FLAGS
	ldr	x0, [sp, #\flags]
	msr	nzcv, x0
	ldp	x0, x1, [sp, #0]
	ldp	x2, x3, [sp, #16]
	ldp	x4, x5, [sp, #32]
	ldp	x6, x7, [sp, #48]
	ldp	x8, x9, [sp, #64]
	ldp	x10, x11, [sp, #80]
	ldp	x12, x13, [sp, #96]
	ldp	x14, x15, [sp, #112]
	ldp	x16, x17, [sp, #128]
	ldp	x18, x19, [sp, #144]
	ldp	x20, x21, [sp, #160]
	ldp	x22, x23, [sp, #176]
	ldp	x24, x25, [sp, #192]
	ldp	x26, x27, [sp, #208]
	ldr	x28, [sp, #224]
	.endm
