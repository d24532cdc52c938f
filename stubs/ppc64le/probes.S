/* SPDX-License-Identifier: MIT */
/* Called from detours, and on a probed function's return: all registers are saved in a struct
 * registers, above what C functions expect of their caller's frame. */
	.file	"probes.S"
#include "offsets.h"
#include "save.h"
#include "toc.h"
#include "detour.h"
	.cfi_sections .eh_frame, .debug_frame
	.text
#define OWN 32
#define R(n) OWN + REGISTERS_R + 8 * (n)
#define BACK OWN + REGISTERS_BACK
#define FRAME OWN + SIZEOF_REGISTERS
	.if	(FRAME) & 15
	.error	"the stack pointer is a multiple of 16"
	.endif

/* All but r0, r1, and r13, which has the thread pointer. */
	.macro	numbered do
	.irp	n, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
	\do	\n, R(\n)(1)
	.endr
	.endm

	.macro	save_all			/* r0 is free from here on */
	stdu	1, -(FRAME)(1)
	.cfi_adjust_cfa_offset FRAME
	numbered std
	std	13, R(13)(1)
	mflr	0
	std	0, BACK(1)
	.cfi_rel_offset LR, BACK
	mfctr	0
	std	0, R(REGISTER_CTR)(1)
	mfcr	0
	std	0, R(REGISTER_CR)(1)
	mfxer	0
	std	0, R(REGISTER_XER)(1)
	.endm

	.macro	restore_all
	ld	0, R(REGISTER_CTR)(1)
	mtctr	0
	ld	0, R(REGISTER_CR)(1)
	mtcr	0
	ld	0, R(REGISTER_XER)(1)
	mtxer	0
	ld	0, BACK(1)
	mtlr	0
	.cfi_restore LR
	numbered ld
	addi	1, 1, FRAME
	.cfi_adjust_cfa_offset -(FRAME)
	.endm

/* From a detour in a library, by library_probes.S. */
	.globl	ftrace_library_caller
	.type	ftrace_library_caller, @function
ftrace_library_caller:
	.cfi_startproc
	.cfi_offset LR, DETOUR_BACK
	ld	0, DETOUR_BACK(1)
	mtlr	0
	.cfi_restore LR
	ld	12, DETOUR_R12(1)
	b	ftrace_caller
	.cfi_endproc
	.size	ftrace_library_caller, . - ftrace_library_caller

/* From a detour, as detour.h has its frame; LR: back into it. Nothing is changed but what a handler, or a
 * return to be awaited, changes. */
	.globl	ftrace_caller, ftrace_regs_caller
	.type	ftrace_caller, @function
	.type	ftrace_regs_caller, @function
	.p2align 6
ftrace_caller:
ftrace_regs_caller:			/* mid-function: all flags are kept */
	.cfi_startproc
	save_all
	ld	3, FRAME + DETOUR_PLACE(1)
	std	3, OWN + REGISTERS_PLACE(1)
	ld	3, FRAME + DETOUR_R0(1)
	std	3, R(0)(1)
	ld	3, FRAME + DETOUR_LR(1)
	std	3, R(REGISTER_LR)(1)
	addi	3, 1, FRAME + DETOUR_FRAME
	std	3, R(1)(1)
	addi	3, 1, OWN
	own_toc
	bl	probe_hit
	ld	3, R(0)(1)
	std	3, FRAME + DETOUR_R0(1)
	ld	3, R(REGISTER_LR)(1)
	std	3, FRAME + DETOUR_LR(1)
	restore_all
	blr
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller
	.size	ftrace_regs_caller, . - ftrace_regs_caller

/* From return_to_handler: | ... | the place | ... | ...
 *                           ^ r1  ^ 112             ^ r1 + SAVED, the slot */
	.globl	ftrace_returned
	.type	ftrace_returned, @function
ftrace_returned:
	.cfi_startproc
	save_all
	std	0, R(0)(1)			/* no one's */
	addi	3, 1, FRAME + 112		/* the place */
	addi	4, 1, FRAME + SAVED		/* the slot */
	ld	0, 0(3)
	std	0, R(REGISTER_LR)(1)
	std	4, R(1)(1)
	addi	5, 1, OWN
	own_toc
	bl	trace_return
	restore_all
	blr
	.cfi_endproc
	.size	ftrace_returned, . - ftrace_returned
	.section .note.GNU-stack, "", @progbits
