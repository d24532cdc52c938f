/* SPDX-License-Identifier: MIT */
/* For a user's functions that take registers: all are saved in a struct ftrace_regs, behind the room that
 * C functions expect of their caller, and restored but for r15, and for r1 where a function is entered. Of
 * psw_mask there are the condition code and the program mask. */
	.file	"regs.S"
#include "offsets.h"
#include "save.h"
	.cfi_sections .eh_frame, .debug_frame
	.text
#define AT(member) ROOM + FTRACE_REGS_##member
#define R(n) AT(GPRS) + 8 * (n)
#define OWN (ROOM + SIZEOF_FTRACE_REGS)
#define MASK_BITS 16			/* from where ipm has them up to where the PSW does */

	.macro	mask_saved
	lghi	%r0, 0
	ipm	%r0
	sllg	%r0, %r0, MASK_BITS
	stg	%r0, AT(PSW_MASK)(%r15)
	.endm

	.macro	mask_restored
	lg	%r0, AT(PSW_MASK)(%r15)
	srlg	%r0, %r0, MASK_BITS
	spm	%r0
	.endm

/* From a site, as entry.S has it:
 *
 *     | 160 bytes | struct ftrace_regs | ...
 *       ^ r15                            ^ the slot
 *
 * The location of the function's return address is that of r14. */
	.globl	ftrace_caller
	.type	ftrace_caller, @function
	.p2align 6
ftrace_caller:
	.cfi_startproc
	entered
	lay	%r15, -OWN(%r15)
	.cfi_adjust_cfa_offset OWN
	.cfi_val_offset %r15, -ROOM
	stmg	%r0, %r14, R(0)(%r15)
	.cfi_rel_offset %r14, R(14)
	stg	%r1, AT(PSW_ADDR)(%r15)
	.cfi_rel_offset %r1, AT(PSW_ADDR)
	mask_saved
	lgr	%r2, %r1
	la	%r3, R(14)(%r15)		/* location of the return address */
	la	%r4, OWN(%r15)			/* the slot */
	stg	%r4, R(15)(%r15)
	la	%r5, ROOM(%r15)
	brasl	%r14, trace_entry
	mask_restored
	lg	%r0, R(0)(%r15)
	lg	%r1, AT(PSW_ADDR)(%r15)
	.cfi_same_value %r1
	lmg	%r2, %r14, R(2)(%r15)
	.cfi_same_value %r14
	lay	%r15, OWN(%r15)
	.cfi_adjust_cfa_offset -OWN
	.cfi_same_value %r15
	br	%r1
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller

/* From return_to_handler: | 160 bytes | struct ftrace_regs | back | its 160 bytes | the place | ... | ...
 *                           ^ r15                                  ^ its r15         its r15 + KEPT, the slot */
#define BACK OWN
#define WHOLE (OWN + 8)
	.globl	ftrace_returned
	.type	ftrace_returned, @function
ftrace_returned:
	.cfi_startproc
	lay	%r15, -WHOLE(%r15)
	.cfi_adjust_cfa_offset WHOLE
	.cfi_val_offset %r15, -ROOM
	stmg	%r0, %r14, R(0)(%r15)
	stg	%r14, BACK(%r15)
	.cfi_rel_offset %r14, BACK
	mask_saved
	la	%r2, WHOLE + PLACE(%r15)
	la	%r3, WHOLE + KEPT(%r15)		/* the slot */
	stg	%r3, R(15)(%r15)
	la	%r4, ROOM(%r15)
	brasl	%r14, trace_return
	mask_restored
	lmg	%r0, %r13, R(0)(%r15)
	lg	%r14, BACK(%r15)
	.cfi_restore %r14
	lay	%r15, WHOLE(%r15)
	.cfi_adjust_cfa_offset -WHOLE
	.cfi_same_value %r15
	br	%r14
	.cfi_endproc
	.size	ftrace_returned, . - ftrace_returned
	.section .note.GNU-stack, "", @progbits
