/* SPDX-License-Identifier: MIT */
/* Called from detours of both instruction sets, and on a probed function's return: all registers are saved
 * in a struct registers. */
	.file	"probes.S"
#include "offsets.h"
	.syntax	unified
	.arm
	.cfi_sections .debug_frame
	.text
#define R(n) REGISTERS_R + 4 * n

/* r0 to r11 are from the struct's start on. The stack pointer is anything where a probe is; C functions want a
 * multiple of 8. */
	.macro	save_all
	sub	sp, sp, #SIZEOF_REGISTERS
	.cfi_adjust_cfa_offset SIZEOF_REGISTERS
	stm	sp, {r0-r12}
	mrs	r0, apsr
	str	r0, [sp, #REGISTERS_FLAGS]
	str	lr, [sp, #REGISTERS_BACK]
	.cfi_rel_offset lr, REGISTERS_BACK
	.endm

	.macro	call function
	mov	r4, sp
	.cfi_def_cfa_register r4
	bic	sp, sp, #7
	bl	\function
	mov	sp, r4
	.cfi_def_cfa_register sp
	.endm

/* From a detour:
 *
 *     | ip, lr of the program | ...        ip: number of the place; lr: back into the detour, bit 0 of which
 *       ^ sp                    ^ sp of the program                    says that it is T32
 *
 * Nothing is changed but what a handler, or a return to be awaited, changes. */
	.macro	from_detour
	save_all
	str	ip, [sp, #REGISTERS_PLACE]
	ldr	r0, [sp, #SIZEOF_REGISTERS]
	ldr	r1, [sp, #SIZEOF_REGISTERS + 4]
	add	r2, sp, #SIZEOF_REGISTERS + 8
	str	r0, [sp, #R(12)]
	str	r1, [sp, #R(14)]
	str	r2, [sp, #R(13)]
	mov	r0, sp
	call	probe_hit
	ldr	r0, [sp, #R(12)]
	ldr	r1, [sp, #R(14)]
	ldr	r2, [sp, #REGISTERS_FLAGS]
	str	r0, [sp, #SIZEOF_REGISTERS]
	str	r1, [sp, #SIZEOF_REGISTERS + 4]
	msr	apsr_nzcvqg, r2
	ldr	lr, [sp, #REGISTERS_BACK]
	.cfi_restore lr
	ldm	sp, {r0-r11}
	add	sp, sp, #SIZEOF_REGISTERS
	.cfi_adjust_cfa_offset -SIZEOF_REGISTERS
	bx	lr
	.endm

/* From a detour in a library, by library_probes.S:
 *
 *     | r0, r1, r2 of the program | ip, lr of the program | ...
 *       ^ sp */
	.macro	from_library to
	pop	{r0-r2}
	.cfi_adjust_cfa_offset -12
	b	\to
	.endm

/* Unwinders that read .ARM.exidx go on in the caller of a function that is entered; elsewhere nothing says
 * where that is. Instructions of theirs: the last one first. */
	.globl	ftrace_library_caller, ftrace_library_regs_caller
	.hidden	ftrace_library_caller, ftrace_library_regs_caller
	.type	ftrace_library_caller, %function
	.type	ftrace_library_regs_caller, %function
ftrace_library_caller:
	.fnstart
	.cfi_startproc
	.cfi_adjust_cfa_offset 12
	.unwind_raw 8, 0x85, 0x00	/* pop {ip, lr} */
	.unwind_raw 12, 0x02		/* sp += 12 */
	from_library ftrace_caller
	.cfi_endproc
	.fnend
	.size	ftrace_library_caller, . - ftrace_library_caller

ftrace_library_regs_caller:		/* mid-function */
	.fnstart
	.cantunwind
	.cfi_startproc
	.cfi_adjust_cfa_offset 12
	from_library ftrace_regs_caller
	.cfi_endproc
	.fnend
	.size	ftrace_library_regs_caller, . - ftrace_library_regs_caller

	.globl	ftrace_caller, ftrace_regs_caller
	.type	ftrace_caller, %function
	.type	ftrace_regs_caller, %function
	.p2align 6
ftrace_caller:
	.fnstart
	.cfi_startproc
	.unwind_raw 8, 0x85, 0x00	/* pop {ip, lr} */
	.unwind_raw 24, 0x05		/* sp += 24 */
	.unwind_raw 32, 0xa7		/* pop {r4-r11} */
	.unwind_raw 16, 0x03		/* sp += 16 */
	.unwind_raw 0, 0x94		/* sp = r4 */
	from_detour
	.cfi_endproc
	.fnend
	.size	ftrace_caller, . - ftrace_caller

	.p2align 6
ftrace_regs_caller:			/* mid-function */
	.fnstart
	.cantunwind
	.cfi_startproc
	from_detour
	.cfi_endproc
	.fnend
	.size	ftrace_regs_caller, . - ftrace_regs_caller

/* From return_to_handler:  | r0 ... r3 | r4 | ip | lr | the place | ...
 *                            ^ sp                       ^ 28        ^ 32, the slot */
	.globl	ftrace_returned
	.hidden	ftrace_returned
	.type	ftrace_returned, %function
ftrace_returned:
	.fnstart
	.cfi_startproc
	.unwind_raw 4, 0x00		/* sp += 4 */
	.unwind_raw 4, 0x84, 0x00	/* pop {lr} */
	.unwind_raw 16, 0x03		/* sp += 16 */
	.unwind_raw 32, 0xa7		/* pop {r4-r11} */
	.unwind_raw 16, 0x03		/* sp += 16 */
	.unwind_raw 0, 0x94		/* sp = r4 */
	save_all
	mov	r0, #0
	add	r1, sp, #SIZEOF_REGISTERS + 32	/* the slot */
	str	r0, [sp, #R(14)]
	str	r1, [sp, #R(13)]
	add	r0, sp, #SIZEOF_REGISTERS + 28	/* the place */
	mov	r2, sp
	call	trace_return
	ldr	lr, [sp, #REGISTERS_BACK]
	.cfi_restore lr
	ldm	sp, {r0-r12}
	add	sp, sp, #SIZEOF_REGISTERS
	.cfi_adjust_cfa_offset -SIZEOF_REGISTERS
	str	ip, [sp, #20]
	stm	sp, {r0-r4}
	bx	lr
	.cfi_endproc
	.fnend
	.size	ftrace_returned, . - ftrace_returned
	.section .note.GNU-stack, "", %progbits
