/* SPDX-License-Identifier: MIT */
/* For a user's functions that take registers: all are saved in a struct ftrace_regs, and restored but
 * for sp, and for t0 where a function is entered. */
	.file	"regs.S"
#include "offsets.h"
#include "save.h"
	.cfi_sections .eh_frame, .debug_frame
	.text
#define R(n) FTRACE_REGS_REGS + 8 * (n)
#define PC FTRACE_REGS_CSR_ERA
#define FRAME SIZEOF_FTRACE_REGS + 8	/* aligned to 16 */

/* All but zero, ra, sp and t0, which callers bring. */
	.macro	numbered do
	.irp	n, 2, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
	\do	$r\n, $sp, R(\n)
	.endr
	.endm

/* From a site, as entry.S has it:
 *
 *     | struct ftrace_regs | - | ...
 *       ^ sp                     ^ the slot
 *
 * The location of the function's return address is that of ra. */
	.globl	ftrace_caller
	.type	ftrace_caller, @function
	.p2align 6
ftrace_caller:
	.cfi_startproc
	entered
	addi.d	$sp, $sp, -(FRAME)
	.cfi_adjust_cfa_offset FRAME
	st.d	$ra, $sp, PC
	.cfi_rel_offset IP, PC
	st.d	$t0, $sp, R(1)
	.cfi_rel_offset RA, R(1)
	st.d	$t0, $sp, R(12)
	st.d	$zero, $sp, R(0)
	numbered st.d
	move	$a0, $ra
	addi.d	$a1, $sp, R(1)			/* location of the return address */
	addi.d	$a2, $sp, FRAME	/* the slot */
	st.d	$a2, $sp, R(3)
	move	$a3, $sp
	bl	trace_entry
	numbered ld.d
	ld.d	$ra, $sp, R(1)
	.cfi_same_value RA
	ld.d	$t0, $sp, PC
	.cfi_register IP, T0
	addi.d	$sp, $sp, FRAME
	.cfi_adjust_cfa_offset -(FRAME)
	jr	$t0
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller

/* From return_to_handler: | struct ftrace_regs | back | ... | the place | ... | ...
 *                           ^ sp                 ^ SIZEOF     ^ its sp          ^ its sp + 144, the slot */
#define OWN SIZEOF_FTRACE_REGS + 24
	.globl	ftrace_returned
	.type	ftrace_returned, @function
ftrace_returned:
	.cfi_startproc
	addi.d	$sp, $sp, -(OWN)
	.cfi_adjust_cfa_offset OWN
	st.d	$ra, $sp, SIZEOF_FTRACE_REGS
	.cfi_rel_offset RA, SIZEOF_FTRACE_REGS
	st.d	$t0, $sp, R(12)
	st.d	$zero, $sp, R(0)
	numbered st.d
	addi.d	$a0, $sp, OWN			/* the place */
	addi.d	$a1, $sp, OWN + 144		/* the slot */
	st.d	$a1, $sp, R(3)
	move	$a2, $sp
	bl	trace_return
	numbered ld.d
	ld.d	$t0, $sp, R(12)
	ld.d	$ra, $sp, SIZEOF_FTRACE_REGS
	.cfi_restore RA
	addi.d	$sp, $sp, OWN
	.cfi_adjust_cfa_offset -(OWN)
	jr	$ra
	.cfi_endproc
	.size	ftrace_returned, . - ftrace_returned
	.section .note.GNU-stack, "", @progbits
