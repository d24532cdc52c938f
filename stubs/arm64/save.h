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
