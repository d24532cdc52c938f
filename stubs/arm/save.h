/* SPDX-License-Identifier: MIT */
/* What ftrace_caller keeps, of a program and of a library: all that C functions may change, in the order in
 * which one instruction takes it back.
 *
 *     | r0 ... r3 | r4 | ip | lr: parent | pc: ip | ...       before:  | parent | ...    lr: ip
 *       ^ sp        ^ 16      ^ 24         ^ 28     ^ 32, the slot       ^ sp     ^ the slot
 *
 * Unwinders that read .ARM.exidx go on in the function's caller: what the function's own entry says is not so
 * before its prologue. Debuggers are told of the function.
 */
#define SAVED 32
#define SAVED_PARENT 24
#define SAVED_IP 28

	.macro	entered			/* the function expects its parent in lr */
	.cfi_return_column pc
	.cfi_def_cfa sp, 4
	.cfi_offset lr, -4
	.cfi_register pc, lr
	.endm

	.macro	save
	push	{r0-r4, ip, lr}
	.cfi_adjust_cfa_offset 28
	ldr	r0, [sp, #SAVED_IP]	/* the parent */
	str	lr, [sp, #SAVED_IP]
	.cfi_offset pc, SAVED_IP - SAVED
	str	r0, [sp, #SAVED_PARENT]
	.cfi_offset lr, SAVED_PARENT - SAVED
	.unwind_raw 4, 0x00		/* the last one first: sp += 4 */
	.unwind_raw 4, 0x84, 0x00	/* pop {lr} */
	.unwind_raw 24, 0x05		/* sp += 24 */
	.endm

	.macro	restore
	pop	{r0-r4, ip, lr, pc}
	.endm
