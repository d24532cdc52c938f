/* SPDX-License-Identifier: MIT */
/* Called from detours, and on a probed function's return: all registers are saved in a struct
 * registers. */
	.file	"probes.S"
#include "offsets.h"
#include "save.h"
	.cfi_sections .eh_frame, .debug_frame
	.text

/* From a detour. Nothing is changed but what a handler changes, and the flags where a function is
 * entered.
 *
 *     | back into the detour | number of the place | ...
 *       ^ esp                                        ^ esp of the program */
	.macro	from_detour name, flags=0
	.globl	\name
	.type	\name, @function
	.p2align 6
\name:
	.cfi_startproc
	save_all
	leal	REGISTERS_FLAGS+12(%esp), %eax
	movl	%eax, SP(%esp)
	movl	%esp, %eax
	pushl	%eax
	.cfi_adjust_cfa_offset 4
	.if	\flags
	cld
	.endif
	call	probe_hit
	leal	4(%esp), %esp
	.cfi_adjust_cfa_offset -4
	restore_general
	.if	\flags
	popfl
	.else
	leal	4(%esp), %esp		/* popfl takes as long as all the rest */
	.endif
	.cfi_adjust_cfa_offset -4
	ret
	.cfi_endproc
	.size	\name, . - \name
	.endm

	from_detour ftrace_caller
	from_detour ftrace_regs_caller, flags=1	/* mid-function */

/* From return_to_handler:  | back into it | the place | POPPED bytes | ...
 *                            ^ esp                                     ^ esp of the program */
	.globl	ftrace_returned
	.hidden	ftrace_returned
	.type	ftrace_returned, @function
ftrace_returned:
	.cfi_startproc
	save_all
	leal	REGISTERS_FLAGS+12+POPPED(%esp), %edx
	movl	%edx, SP(%esp)
	subl	$4, %edx			/* the slot, but for arguments that were popped */
	leal	REGISTERS_FLAGS+8(%esp), %eax	/* the place */
	movl	%esp, %ecx
	call	trace_return
	restore_general
	leal	4(%esp), %esp
	.cfi_adjust_cfa_offset -4
	ret
	.cfi_endproc
	.size	ftrace_returned, . - ftrace_returned
	.section .note.GNU-stack, "", @progbits
