/* SPDX-License-Identifier: MIT */
/* For a user's functions that take registers: all are saved in a struct ftrace_regs, and restored but for sp.
 * Instructions of unwinders: the last one first. */
	.file	"regs.S"
#include "offsets.h"
	.syntax	unified
	.arm
	.cfi_sections .debug_frame
	.text
#define AT(member) FTRACE_REGS_##member
#define SAVED 72			/* from the struct to the slot: a multiple of 8 */
#define SAVED_IP 68

	.macro	flags_kept
	mrs	r0, apsr
	str	r0, [sp, #AT(CPSR)]
	.endm

	.macro	flags_back
	ldr	r0, [sp, #AT(CPSR)]
	msr	apsr_nzcvqg, r0
	.endm

/* From a site, as entry.S has it:
 *
 *     | struct ftrace_regs | parent, then ip | ...
 *       ^ sp                 ^ 68              ^ 72, the slot
 *
 * The location of the function's return address is that of lr. */
	.globl	ftrace_caller
	.type	ftrace_caller, %function
	.p2align 6
ftrace_caller:
	.fnstart
	.cfi_startproc
	.unwind_raw 12, 0x02		/* sp += 12 */
	.unwind_raw 4, 0x84, 0x00	/* pop {lr} */
	.unwind_raw 56, 0x0d		/* sp += 56 */
	.cfi_return_column pc		/* the function expects its parent in lr */
	.cfi_def_cfa sp, 4
	.cfi_offset lr, -4
	.cfi_register pc, lr
	sub	sp, sp, #SAVED_IP
	.cfi_adjust_cfa_offset SAVED_IP
	stm	sp, {r0-r12}
	flags_kept
	ldr	r0, [sp, #SAVED_IP]
	str	r0, [sp, #AT(LR)]
	str	lr, [sp, #AT(PC)]
	.cfi_rel_offset pc, AT(PC)
	add	r2, sp, #SAVED		/* the slot */
	str	r2, [sp, #AT(SP)]
	mov	r0, lr			/* bit 0 says which set the site is in */
	add	r1, sp, #AT(LR)		/* location of the return address */
	mov	r3, sp
	bl	trace_entry
	flags_back
	ldr	lr, [sp, #AT(LR)]
	.cfi_same_value lr
	ldr	r0, [sp, #AT(PC)]
	str	r0, [sp, #SAVED_IP]
	.cfi_rel_offset pc, SAVED_IP
	ldm	sp, {r0-r12}
	add	sp, sp, #SAVED_IP
	.cfi_adjust_cfa_offset -SAVED_IP
	pop	{pc}
	.cfi_endproc
	.fnend
	.size	ftrace_caller, . - ftrace_caller

/* From return_to_handler:
 *
 *     | struct ftrace_regs | back | r0 ... r3 | r4 | ip | lr | the place | ...
 *       ^ sp                 ^ 72   ^ 80, its sp             ^ its sp + 28 ^ its sp + 32, the slot */
#define OWN SAVED + 8
	.globl	ftrace_returned
	.hidden	ftrace_returned
	.type	ftrace_returned, %function
ftrace_returned:
	.fnstart
	.cfi_startproc
	.unwind_raw 4, 0x00		/* sp += 4 */
	.unwind_raw 4, 0x84, 0x00	/* pop {lr} */
	.unwind_raw 72, 0x11		/* sp += 72 */
	sub	sp, sp, #OWN
	.cfi_adjust_cfa_offset OWN
	stm	sp, {r0-r12}
	flags_kept
	str	lr, [sp, #SAVED]
	.cfi_rel_offset lr, SAVED
	add	r0, sp, #OWN + 28	/* the place */
	add	r1, sp, #OWN + 32	/* the slot */
	str	r1, [sp, #AT(SP)]
	mov	r2, sp
	bl	trace_return
	flags_back
	ldr	lr, [sp, #SAVED]
	.cfi_restore lr
	ldm	sp, {r0-r12}
	add	sp, sp, #OWN
	.cfi_adjust_cfa_offset -(OWN)
	str	ip, [sp, #20]
	stm	sp, {r0-r4}
	bx	lr
	.cfi_endproc
	.fnend
	.size	ftrace_returned, . - ftrace_returned
	.section .note.GNU-stack, "", %progbits
