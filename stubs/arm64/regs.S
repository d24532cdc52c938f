/* SPDX-License-Identifier: MIT */
/* For a user's functions that take registers: all are saved in a struct ftrace_regs, and restored but
 * for sp, and for x9 where a function is entered. */
	.file	"regs.S"
#include "offsets.h"
#include "save.h"
	.cfi_sections .eh_frame, .debug_frame
	.text
#define RECORDS 32			/* bytes of two frame records */
#define AT(member) FTRACE_REGS_##member

/* From a site, as entry.S has it:
 *
 *     | struct ftrace_regs | x29, ip | x29, parent | ...
 *       ^ sp                 ^ SIZEOF                ^ the slot
 *
 * with two frame records: ftrace_caller's, and one of the function that was entered. The location of
 * its return address is regs[30]. */
	.globl	ftrace_caller
	.type	ftrace_caller, @function
	.p2align 6
ftrace_caller:
	.cfi_startproc
	.cfi_return_column x16		/* the function expects its parent in x30 */
	.cfi_register x16, x30
	.cfi_register x30, x9
	sub	sp, sp, #SIZEOF_FTRACE_REGS + RECORDS
	.cfi_adjust_cfa_offset SIZEOF_FTRACE_REGS + RECORDS
	save_all FTRACE_REGS_PSTATE
	stp	x29, x9, [sp, #X(29)]
	.cfi_rel_offset x29, X(29)
	.cfi_rel_offset x30, X(30)
	str	x30, [sp, #AT(PC)]
	add	x2, sp, #SIZEOF_FTRACE_REGS + RECORDS	/* the slot */
	str	x2, [sp, #AT(SP)]
	stp	x29, x9, [sp, #SIZEOF_FTRACE_REGS + 16]
	add	x29, sp, #SIZEOF_FTRACE_REGS + 16
	stp	x29, x30, [sp, #SIZEOF_FTRACE_REGS]
	.cfi_rel_offset x16, SIZEOF_FTRACE_REGS + 8
	add	x29, sp, #SIZEOF_FTRACE_REGS
	mov	x0, x30
	add	x1, sp, #X(30)		/* location of the return address */
	mov	x3, sp
	bl	trace_entry
	restore_all FTRACE_REGS_PSTATE
	ldp	x29, x30, [sp, #X(29)]
	.cfi_restore x29
	.cfi_same_value x30
	ldr	x9, [sp, #AT(PC)]
	.cfi_register x16, x9
	add	sp, sp, #SIZEOF_FTRACE_REGS + RECORDS
	.cfi_adjust_cfa_offset -SIZEOF_FTRACE_REGS - RECORDS
	ret	x9
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller

/* From return_to_handler: | struct ftrace_regs | x29, back | x29, the place | ... | ...
 *                           ^ sp                 ^ SIZEOF    ^ its sp               ^ its sp + 96, the slot */
#define OWN SIZEOF_FTRACE_REGS + 16
	.globl	ftrace_returned
	.type	ftrace_returned, @function
ftrace_returned:
	.cfi_startproc
	sub	sp, sp, #OWN
	.cfi_adjust_cfa_offset OWN
	save_all FTRACE_REGS_PSTATE
	stp	x29, x30, [sp, #SIZEOF_FTRACE_REGS]
	.cfi_rel_offset x29, SIZEOF_FTRACE_REGS
	.cfi_rel_offset x30, SIZEOF_FTRACE_REGS + 8
	add	x29, sp, #SIZEOF_FTRACE_REGS
	ldr	x0, [sp, #OWN]
	str	x0, [sp, #X(29)]
	add	x0, sp, #OWN + 8	/* the place */
	add	x1, sp, #OWN + 96	/* the slot */
	str	x1, [sp, #AT(SP)]
	mov	x2, sp
	bl	trace_return
	ldr	x0, [sp, #X(29)]
	str	x0, [sp, #OWN]
	restore_all FTRACE_REGS_PSTATE
	ldp	x29, x30, [sp, #SIZEOF_FTRACE_REGS]
	.cfi_restore x29
	.cfi_restore x30
	add	sp, sp, #OWN
	.cfi_adjust_cfa_offset -(OWN)
	ret
	.cfi_endproc
	.size	ftrace_returned, . - ftrace_returned
	.section .note.GNU-stack, "", @progbits
