/* SPDX-License-Identifier: MIT */
/* Called from detours, and on a probed function's return: all registers are saved in a struct
 * registers. */
	.file	"probes.S"
#include "offsets.h"
	.cfi_sections .eh_frame, .debug_frame
	.text
#define R(n) REGISTERS_R + 8 * n
#define RA 1

/* All but ra and sp, which callers bring, and t0 (r12), which is a detour's. */
	.macro	numbered do
	.irp	n, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16, 17, 18, 19, 20, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
	\do	$r\n, $sp, R(\n)
	.endr
	.endm

	.macro	save_all
	addi.d	$sp, $sp, -SIZEOF_REGISTERS
	.cfi_adjust_cfa_offset SIZEOF_REGISTERS
	st.d	$ra, $sp, REGISTERS_BACK
	.cfi_rel_offset RA, REGISTERS_BACK
	st.d	$zero, $sp, R(0)
	st.d	$tp, $sp, R(2)
	st.d	$r21, $sp, R(21)
	numbered st.d
	.endm

	.macro	restore_all
	numbered ld.d
	ld.d	$ra, $sp, REGISTERS_BACK
	.cfi_restore RA
	addi.d	$sp, $sp, SIZEOF_REGISTERS
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
	ld.d	$t1, $sp, 0
	addi.d	$sp, $sp, 16
	.cfi_adjust_cfa_offset -16
	b	ftrace_caller
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
	st.d	$t0, $sp, REGISTERS_PLACE
	ld.d	$t1, $sp, SIZEOF_REGISTERS
	ld.d	$t2, $sp, SIZEOF_REGISTERS + 8
	st.d	$t1, $sp, R(1)
	st.d	$t2, $sp, R(12)
	addi.d	$t1, $sp, SIZEOF_REGISTERS + 16
	st.d	$t1, $sp, R(3)
	move	$a0, $sp
	bl	probe_hit
	ld.d	$t1, $sp, R(1)
	ld.d	$t2, $sp, R(12)
	st.d	$t1, $sp, SIZEOF_REGISTERS
	st.d	$t2, $sp, SIZEOF_REGISTERS + 8
	restore_all
	jr	$ra
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller
	.size	ftrace_regs_caller, . - ftrace_regs_caller

/* From return_to_handler: | the place | ... | ...
 *                           ^ sp              ^ sp + 144, the slot */
	.globl	ftrace_returned
	.type	ftrace_returned, @function
ftrace_returned:
	.cfi_startproc
	save_all
	st.d	$t0, $sp, R(12)
	addi.d	$a0, $sp, SIZEOF_REGISTERS	/* the place */
	addi.d	$a1, $sp, SIZEOF_REGISTERS + 144	/* the slot */
	ld.d	$t1, $sp, SIZEOF_REGISTERS
	st.d	$t1, $sp, R(1)
	st.d	$a1, $sp, R(3)
	move	$a2, $sp
	bl	trace_return
	ld.d	$t0, $sp, R(12)
	restore_all
	jr	$ra
	.cfi_endproc
	.size	ftrace_returned, . - ftrace_returned
	.section .note.GNU-stack, "", @progbits
