/* SPDX-License-Identifier: MIT */
/* For a user's functions that take registers: all are saved in a struct ftrace_regs, above what C functions
 * expect of their caller's frame, and restored but for r1; where a function is entered ctr leads there, and
 * where it returns r0 is ours. */
	.file	"regs.S"
#include "offsets.h"
#include "save.h"
#include "toc.h"
	.cfi_sections .eh_frame, .debug_frame
	.text
#define OWN 32
#define AT(member) OWN + FTRACE_REGS_##member
#define R(n) AT(GPR) + 8 * (n)
#define BACK OWN + SIZEOF_FTRACE_REGS
#define FRAME OWN + SIZEOF_FTRACE_REGS + 8
	.if	(FRAME) & 15
	.error	"the stack pointer is a multiple of 16"
	.endif

/* All but r0 and r1. */
	.macro	numbered do
	.irp	n, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
	\do	\n, R(\n)(1)
	.endr
	.endm

	.macro	saved				/* r0 is free from here on */
	std	0, R(0)(1)
	numbered std
	mfctr	0
	std	0, AT(CTR)(1)
	mfxer	0
	std	0, AT(XER)(1)
	mfcr	0
	std	0, AT(CCR)(1)
	.endm

	.macro	flags_restored
	ld	0, AT(XER)(1)
	mtxer	0
	ld	0, AT(CCR)(1)
	mtcr	0
	.endm

/* From a site, as entry.S has it:
 *
 *     | back chain, CR, LR, r2 | struct ftrace_regs | ip | ...
 *       ^ r1                     ^ 32                      ^ the slot
 *
 * The location of the function's return address is that of link. */
	.globl	ftrace_caller
	.type	ftrace_caller, @function
	.p2align 6
ftrace_caller:
	.cfi_startproc
	entered
	stdu	1, -(FRAME)(1)
	.cfi_adjust_cfa_offset FRAME
	std	0, AT(LINK)(1)
	.cfi_rel_offset LR, AT(LINK)
	saved
	mflr	3				/* ip */
	std	3, AT(NIP)(1)
	std	3, BACK(1)
	.cfi_rel_offset CTR, AT(NIP)
	addi	4, 1, AT(LINK)			/* location of the return address */
	addi	5, 1, FRAME			/* the slot */
	std	5, R(1)(1)
	addi	6, 1, OWN
	.cfi_rel_offset 2, R(2)
	own_toc
	bl	trace_entry
	ld	0, AT(NIP)(1)
	ld	3, BACK(1)
	cmpd	0, 3
	beq	1f
	std	0, R(12)(1)			/* another function, by its global entry */
1:	flags_restored
	ld	0, AT(NIP)(1)
	mtctr	0
	.cfi_same_value CTR
	ld	0, AT(LINK)(1)
	mtlr	0
	.cfi_same_value LR
	numbered ld
	.cfi_same_value 2
	ld	0, R(0)(1)
	addi	1, 1, FRAME
	.cfi_adjust_cfa_offset -(FRAME)
	bctr
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller

/* From return_to_handler:
 *
 *     | ... | struct ftrace_regs | back | its frame: ..., r2 | ... | the place | ...
 *       ^ r1  ^ 32                        ^ its r1      ^ 24         ^ 112         ^ SAVED, the slot */
	.globl	ftrace_returned
	.type	ftrace_returned, @function
ftrace_returned:
	.cfi_startproc
	stdu	1, -(FRAME)(1)
	.cfi_adjust_cfa_offset FRAME
	saved
	mflr	0
	std	0, BACK(1)
	.cfi_rel_offset LR, BACK
	addi	3, 1, FRAME + 112		/* the place */
	addi	4, 1, FRAME + SAVED		/* the slot */
	std	4, R(1)(1)
	addi	5, 1, OWN
	own_toc
	bl	trace_return
	flags_restored
	ld	0, AT(CTR)(1)
	mtctr	0
	ld	0, BACK(1)
	mtlr	0
	.cfi_restore LR
	numbered ld
	std	2, FRAME + SAVED_TOC(1)		/* which has been kept there */
	addi	1, 1, FRAME
	.cfi_adjust_cfa_offset -(FRAME)
	blr
	.cfi_endproc
	.size	ftrace_returned, . - ftrace_returned
	.section .note.GNU-stack, "", @progbits
