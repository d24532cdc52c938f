/* SPDX-License-Identifier: MIT */
/* Called from detours, and on a probed function's return: all registers are saved in a struct
 * registers. */
	.file	"probes.S"
#include "offsets.h"
#include "save.h"
	.cfi_sections .eh_frame, .debug_frame
	.text

/* From a detour, which keeps off the red zone. Nothing is changed but what a handler changes, and the
 * flags where a function is entered.
 *
 *     | back into the detour | number of the place | 128 bytes | ...
 *       ^ rsp                                                    ^ rsp of the program */
	.macro	from_detour name, flags=0
	.globl	\name
	.type	\name, @function
	.p2align 6
\name:
	.cfi_startproc
	save_all
	leaq	REGISTERS_FLAGS+24+128(%rsp), %rax
	movq	%rax, SP(%rsp)
	movq	%rsp, %rdi
	.if	\flags
	cld
	.endif
	call	probe_hit
	restore_general
	.if	\flags
	popfq
	.else
	leaq	8(%rsp), %rsp		/* popfq takes as long as all the rest */
	.endif
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_endproc
	.size	\name, . - \name
	.endm

	from_detour ftrace_caller
	from_detour ftrace_regs_caller, flags=1	/* mid-function */

/* From return_to_handler:  | back into it | the slot | ...
 *                            ^ rsp                     ^ rsp of the program */
	.globl	ftrace_returned
	.type	ftrace_returned, @function
ftrace_returned:
	.cfi_startproc
	save_all
	leaq	REGISTERS_FLAGS+24(%rsp), %rax
	movq	%rax, SP(%rsp)
	leaq	-8(%rax), %rdi		/* where the return address goes */
	movq	%rdi, %rsi		/* which is the slot */
	movq	%rsp, %rdx
	call	trace_return
	restore_general
	leaq	8(%rsp), %rsp
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_endproc
	.size	ftrace_returned, . - ftrace_returned
	.section .note.GNU-stack, "", @progbits
