/* SPDX-License-Identifier: MIT */
/* Called from detours, and on a probed function's return: all registers are saved in a struct
 * registers. */
	.file	"probes.S"
#include "offsets.h"
	.cfi_sections .eh_frame, .debug_frame
	.text
#define X(n) REGISTERS_X + 8 * n

/* All but ra and sp, which callers bring, and t0, which is a detour's. */
	.macro	numbered do
	.irp	n, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
	\do	x\n, X(\n)(sp)
	.endr
	.endm

	.macro	save_all
	addi	sp, sp, -SIZEOF_REGISTERS
	.cfi_adjust_cfa_offset SIZEOF_REGISTERS
	sd	ra, REGISTERS_BACK(sp)
	.cfi_rel_offset ra, REGISTERS_BACK
	sd	zero, X(0)(sp)
	sd	gp, X(3)(sp)
	sd	tp, X(4)(sp)
	numbered sd
	.endm

	.macro	restore_all
	numbered ld
	ld	ra, REGISTERS_BACK(sp)
	.cfi_restore ra
	addi	sp, sp, SIZEOF_REGISTERS
	.cfi_adjust_cfa_offset -SIZEOF_REGISTERS
	.endm

/* From a detour in a library, by library_probes.S:
 *
 *     | t1 of the program, - | ra, t0 of the program | ...
 *       ^ sp                                                ra: back into the detour */
	.globl	ftrace_library_caller
	.type	ftrace_library_caller, @function
ftrace_library_caller:
	.cfi_startproc
	.cfi_adjust_cfa_offset 16
	ld	t1, 0(sp)
	addi	sp, sp, 16
	.cfi_adjust_cfa_offset -16
	j	ftrace_caller
	.cfi_endproc
	.size	ftrace_library_caller, . - ftrace_library_caller

/* From a detour:
 *
 *     | ra, t0 of the program | ...            t0: number of the place; ra: back into the detour
 *       ^ sp                    ^ sp of the program
 *
 * Nothing is changed but what a handler, or a return to be awaited, changes. */
	.globl	ftrace_caller, ftrace_regs_caller
	.type	ftrace_caller, @function
	.type	ftrace_regs_caller, @function
	.p2align 6
ftrace_caller:
ftrace_regs_caller:			/* mid-function: there are no flags */
	.cfi_startproc
	save_all
	sd	t0, REGISTERS_PLACE(sp)
	ld	t1, SIZEOF_REGISTERS(sp)
	ld	t2, SIZEOF_REGISTERS + 8(sp)
	sd	t1, X(1)(sp)
	sd	t2, X(5)(sp)
	addi	t1, sp, SIZEOF_REGISTERS + 16
	sd	t1, X(2)(sp)
	mv	a0, sp
	call	probe_hit
	ld	t1, X(1)(sp)
	ld	t2, X(5)(sp)
	sd	t1, SIZEOF_REGISTERS(sp)
	sd	t2, SIZEOF_REGISTERS + 8(sp)
	restore_all
	ret
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller
	.size	ftrace_regs_caller, . - ftrace_regs_caller

/* From return_to_handler: | the place | ... | ...
 *                           ^ sp              ^ sp + 128, the slot */
	.globl	ftrace_returned
	.type	ftrace_returned, @function
ftrace_returned:
	.cfi_startproc
	save_all
	sd	t0, X(5)(sp)
	addi	a0, sp, SIZEOF_REGISTERS	/* the place */
	addi	a1, sp, SIZEOF_REGISTERS + 128	/* the slot */
	ld	t1, SIZEOF_REGISTERS(sp)
	sd	t1, X(1)(sp)
	sd	a1, X(2)(sp)
	mv	a2, sp
	call	trace_return
	ld	t0, X(5)(sp)
	restore_all
	ret
	.cfi_endproc
	.size	ftrace_returned, . - ftrace_returned
	.section .note.GNU-stack, "", @progbits
