/* SPDX-License-Identifier: MIT */
/* Injected into a shared library that is probed with a program: its detours go on to the program's
 * runtime, once that has set the address (libraries.h); in other programs never. No register is free, so
 * three are put on the stack, below what is there in probes.S, and the program's ftrace_library_caller
 * takes them from there. */
	.file	"library_probes.S"
#include "offsets.h"
	.syntax	unified
	.arm
#include "library_hook.h"
	.cfi_sections .debug_frame
	.globl	ftrace_caller, ftrace_regs_caller
	.type	ftrace_caller, %function
	.type	ftrace_regs_caller, %function

/* All flags are kept: GE too, by which mid-function code may select. */
	.macro	go_on to
	push	{r0-r2}
	.cfi_adjust_cfa_offset 12
	mrs	r2, apsr
	movw	r0, #:lower16:(ftpatch_library - (1f + 8))
	movt	r0, #:upper16:(ftpatch_library - (1f + 8))
1:	add	r0, pc, r0
	ldr	r1, [r0, #LIBRARY_HOOK_ENTRY]
	cmp	r1, #0
	beq	2f
	dmb	ish			/* the rest, and what it leads to, was written first */
	ldr	r1, [r0, #\to]
	msr	apsr_nzcvqg, r2
	bx	r1
2:	msr	apsr_nzcvqg, r2
	pop	{r0-r2}
	.cfi_adjust_cfa_offset -12
	bx	lr
	.endm

	.p2align 6
ftrace_caller:
	.fnstart
	.cfi_startproc
	.unwind_raw 8, 0x85, 0x00	/* pop {ip, lr}, as in probes.S */
	.unwind_raw 12, 0x02		/* sp += 12 */
	go_on	LIBRARY_HOOK_ENTRY
	.cfi_endproc
	.fnend
	.size	ftrace_caller, . - ftrace_caller

	.p2align 6
ftrace_regs_caller:			/* mid-function */
	.fnstart
	.cantunwind
	.cfi_startproc
	go_on	LIBRARY_HOOK_DELTA
	.cfi_endproc
	.fnend
	.size	ftrace_regs_caller, . - ftrace_regs_caller
	.globl	__aeabi_unwind_cpp_pr0, __aeabi_unwind_cpp_pr1
	.hidden	__aeabi_unwind_cpp_pr0, __aeabi_unwind_cpp_pr1
__aeabi_unwind_cpp_pr0:
__aeabi_unwind_cpp_pr1:
	.section .note.GNU-stack, "", %progbits
