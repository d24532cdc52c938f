/* SPDX-License-Identifier: MIT */
/* For a user's functions that take registers: all are saved in a struct ftrace_regs, and restored but
 * for sp, and for t0 where a function is entered. */
	.file	"regs.S"
#include "offsets.h"
	.cfi_sections .eh_frame, .debug_frame
	.text
#define X(n) 8 * (n)			/* pc is where x0 would be */
#define AT(member) FTRACE_REGS_##member

/* All but ra, sp and t0, which callers bring. */
	.macro	numbered do
	.irp	n, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
	\do	x\n, X(\n)(sp)
	.endr
	.endm

/* From a site, as entry.S has it:
 *
 *     | struct ftrace_regs | ...
 *       ^ sp                 ^ the slot
 *
 * The location of the function's return address is that of ra. */
	.globl	ftrace_caller
	.type	ftrace_caller, @function
	.p2align 6
ftrace_caller:
	.cfi_startproc
	.cfi_return_column t0		/* the function expects its parent in ra */
	addi	sp, sp, -SIZEOF_FTRACE_REGS
	.cfi_adjust_cfa_offset SIZEOF_FTRACE_REGS
	sd	t0, AT(PC)(sp)
	.cfi_rel_offset t0, AT(PC)
	sd	ra, AT(RA)(sp)
	.cfi_rel_offset ra, AT(RA)
	sd	t0, AT(T0)(sp)
	numbered sd
	mv	a0, t0
	addi	a1, sp, AT(RA)			/* location of the return address */
	addi	a2, sp, SIZEOF_FTRACE_REGS	/* the slot */
	sd	a2, AT(SP)(sp)
	mv	a3, sp
	call	trace_entry
	numbered ld
	ld	ra, AT(RA)(sp)
	.cfi_same_value ra
	ld	t0, AT(PC)(sp)
	.cfi_same_value t0
	addi	sp, sp, SIZEOF_FTRACE_REGS
	.cfi_adjust_cfa_offset -SIZEOF_FTRACE_REGS
	jr	t0
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller

/* From return_to_handler: | struct ftrace_regs | back | ... | the place | ... | ...
 *                           ^ sp                 ^ SIZEOF     ^ its sp          ^ its sp + 128, the slot */
#define OWN SIZEOF_FTRACE_REGS + 16
	.globl	ftrace_returned
	.type	ftrace_returned, @function
ftrace_returned:
	.cfi_startproc
	addi	sp, sp, -(OWN)
	.cfi_adjust_cfa_offset OWN
	sd	ra, SIZEOF_FTRACE_REGS(sp)
	.cfi_rel_offset ra, SIZEOF_FTRACE_REGS
	sd	t0, AT(T0)(sp)
	numbered sd
	addi	a0, sp, OWN			/* the place */
	addi	a1, sp, OWN + 128		/* the slot */
	sd	a1, AT(SP)(sp)
	mv	a2, sp
	call	trace_return
	numbered ld
	ld	t0, AT(T0)(sp)
	ld	ra, SIZEOF_FTRACE_REGS(sp)
	.cfi_restore ra
	addi	sp, sp, OWN
	.cfi_adjust_cfa_offset -(OWN)
	ret
	.cfi_endproc
	.size	ftrace_returned, . - ftrace_returned
	.section .note.GNU-stack, "", @progbits
