/* SPDX-License-Identifier: MIT */
/* Called from detours, and on a probed function's return: all registers are saved in a struct
 * registers, behind the room that C functions expect of their caller (save.h). */
	.file	"probes.S"
#include "offsets.h"
#include "save.h"
	.cfi_sections .eh_frame, .debug_frame
	.text
#define FRAME (ROOM + SIZEOF_REGISTERS)
#define R(n) (ROOM + REGISTERS_R + 8 * (n))
#define BACK (ROOM + REGISTERS_BACK)

	.macro	framed
	lay	%r15, -FRAME(%r15)		/* unlike aghi it leaves the condition code alone */
	.cfi_adjust_cfa_offset FRAME
	.cfi_val_offset %r15, -ROOM
	.endm

	.macro	unframed
	la	%r15, FRAME(%r15)
	.cfi_adjust_cfa_offset -FRAME
	.cfi_same_value %r15
	.endm

/* From a detour in a library, by library_probes.S:
 *
 *     | r14 of the program, - | r0, r1 of the program | ...
 *       ^ r15 */
	.globl	ftrace_library_caller
	.type	ftrace_library_caller, @function
ftrace_library_caller:
	.cfi_startproc
	entered
	.cfi_def_cfa_offset 32 + ROOM
	.cfi_rel_offset %r14, 0
	lg	%r14, 0(%r15)
	.cfi_same_value %r14
	la	%r15, 16(%r15)
	.cfi_adjust_cfa_offset -16
	j	ftrace_caller
	.cfi_endproc
	.size	ftrace_library_caller, . - ftrace_library_caller

/* From a detour:
 *
 *     | r0, r1 of the program | ...            r0: number of the place; r1: back into the detour
 *       ^ r15                   ^ r15 of the program
 *
 * Nothing is changed but what a handler, or a return to be awaited, changes. */
	.globl	ftrace_caller, ftrace_regs_caller
	.type	ftrace_caller, @function
	.type	ftrace_regs_caller, @function
	.p2align 6
ftrace_caller:
ftrace_regs_caller:			/* mid-function: the condition code is kept, too */
	.cfi_startproc
	entered
	.cfi_def_cfa_offset 16 + ROOM
	framed
	stg	%r1, BACK(%r15)
	.cfi_rel_offset %r1, BACK
	stg	%r0, ROOM + REGISTERS_PLACE(%r15)
	stmg	%r2, %r14, R(2)(%r15)
	.cfi_rel_offset %r14, R(14)
	ipm	%r1
	stg	%r1, ROOM + REGISTERS_FLAGS(%r15)
	lmg	%r2, %r3, FRAME(%r15)
	stmg	%r2, %r3, R(0)(%r15)
	la	%r1, FRAME + 16(%r15)
	stg	%r1, R(15)(%r15)
	la	%r2, ROOM(%r15)
	brasl	%r14, probe_hit
	lmg	%r2, %r3, R(0)(%r15)
	stmg	%r2, %r3, FRAME(%r15)
	lg	%r1, ROOM + REGISTERS_FLAGS(%r15)
	spm	%r1
	lmg	%r2, %r14, R(2)(%r15)
	.cfi_same_value %r14
	lg	%r1, BACK(%r15)
	.cfi_same_value %r1
	unframed
	br	%r1
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller
	.size	ftrace_regs_caller, . - ftrace_regs_caller

/* From return_to_handler: | 160 bytes | the place | ... | ...
 *                           ^ r15                         ^ r15 + KEPT, the slot */
	.globl	ftrace_returned
	.type	ftrace_returned, @function
ftrace_returned:
	.cfi_startproc
	.cfi_def_cfa_offset ROOM
	framed
	stmg	%r0, %r13, R(0)(%r15)
	stg	%r14, BACK(%r15)
	.cfi_rel_offset %r14, BACK
	la	%r2, FRAME + PLACE(%r15)
	la	%r3, FRAME + KEPT(%r15)		/* the slot */
	stg	%r3, R(15)(%r15)
	lg	%r4, 0(%r2)
	stg	%r4, R(14)(%r15)
	la	%r4, ROOM(%r15)
	brasl	%r14, trace_return
	lmg	%r0, %r13, R(0)(%r15)
	lg	%r14, BACK(%r15)
	.cfi_same_value %r14
	unframed
	br	%r14
	.cfi_endproc
	.size	ftrace_returned, . - ftrace_returned
	.section .note.GNU-stack, "", @progbits
