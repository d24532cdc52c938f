/* SPDX-License-Identifier: MIT */
/* Called from detours, and on a probed function's return: all registers are saved in a struct
 * registers. */
	.file	"probes.S"
#include "offsets.h"
#include "save.h"
	.cfi_sections .eh_frame, .debug_frame
	.text

/* From a detour in a library, by library_probes.S:
 *
 *     | x16 of the program, back into the detour | x30, x17 of the program | ... */
	.globl	ftrace_library_caller
	.type	ftrace_library_caller, @function
ftrace_library_caller:
	.cfi_startproc
	.cfi_adjust_cfa_offset 16
	.cfi_rel_offset x30, 8
	ldp	x16, x30, [sp], #16
	.cfi_adjust_cfa_offset -16
	.cfi_restore x30
	b	ftrace_caller
	.cfi_endproc
	.size	ftrace_library_caller, . - ftrace_library_caller

/* From a detour:
 *
 *     | x30, x17 of the program | ...          x17: number of the place; x30: back into the detour
 *       ^ sp                      ^ sp of the program
 *
 * Nothing is changed but what a handler, or a return to be awaited, changes. */
	.globl	ftrace_caller, ftrace_regs_caller
	.type	ftrace_caller, @function
	.type	ftrace_regs_caller, @function
	.p2align 6
ftrace_caller:
ftrace_regs_caller:			/* mid-function: flags are kept anyway */
	.cfi_startproc
	sub	sp, sp, #SIZEOF_REGISTERS
	.cfi_adjust_cfa_offset SIZEOF_REGISTERS
	save_all
	stp	x29, x30, [sp, #X(29)]
	str	x30, [sp, #REGISTERS_BACK]
	.cfi_rel_offset x30, REGISTERS_BACK
	str	x17, [sp, #REGISTERS_PLACE]
	ldp	x0, x1, [sp, #SIZEOF_REGISTERS]
	str	x0, [sp, #X(30)]
	str	x1, [sp, #X(17)]
	add	x0, sp, #SIZEOF_REGISTERS + 16
	str	x0, [sp, #REGISTERS_SP]
	mov	x0, sp
	bl	probe_hit
	ldr	x0, [sp, #X(30)]
	ldr	x1, [sp, #X(17)]
	stp	x0, x1, [sp, #SIZEOF_REGISTERS]
	restore_all
	ldr	x29, [sp, #X(29)]
	ldr	x30, [sp, #REGISTERS_BACK]
	.cfi_restore x30
	add	sp, sp, #SIZEOF_REGISTERS
	.cfi_adjust_cfa_offset -SIZEOF_REGISTERS
	ret
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller
	.size	ftrace_regs_caller, . - ftrace_regs_caller

/* From return_to_handler: | x29, the place | ... | ...
 *                           ^ sp                   ^ sp + 96, the slot */
	.globl	ftrace_returned
	.type	ftrace_returned, @function
ftrace_returned:
	.cfi_startproc
	sub	sp, sp, #SIZEOF_REGISTERS
	.cfi_adjust_cfa_offset SIZEOF_REGISTERS
	save_all
	str	x30, [sp, #REGISTERS_BACK]
	.cfi_rel_offset x30, REGISTERS_BACK
	ldp	x0, x1, [sp, #SIZEOF_REGISTERS]
	stp	x0, x1, [sp, #X(29)]
	add	x0, sp, #SIZEOF_REGISTERS + 8	/* the place */
	add	x1, sp, #SIZEOF_REGISTERS + 96	/* the slot */
	str	x1, [sp, #REGISTERS_SP]
	mov	x2, sp
	bl	trace_return
	restore_all
	ldr	x30, [sp, #REGISTERS_BACK]
	add	sp, sp, #SIZEOF_REGISTERS
	.cfi_adjust_cfa_offset -SIZEOF_REGISTERS
	ret
	.cfi_endproc
	.size	ftrace_returned, . - ftrace_returned
	.section .note.GNU-stack, "", @progbits
