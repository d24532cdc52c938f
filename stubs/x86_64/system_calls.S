/* SPDX-License-Identifier: MIT */
/* From the stub of a system call, which keeps off the red zone: `struct asked`, followed by the return
 * address in the stub. rcx and r11 are what the instruction itself changes. */
	.file	"system_calls.S"
#include "save.h"
	.cfi_sections .eh_frame, .debug_frame
	.text
	.globl	ftrace_asked
	.type	ftrace_asked, @function
	.p2align 4
ftrace_asked:
	.cfi_startproc
	pushq	$0
	.cfi_adjust_cfa_offset 8
	save	r9, r8, r10, rdx, rsi, rdi, rax
	movq	%rsp, %rdi
	call	signal_asked
	restore	rax, rdi, rsi, rdx, r10, r8, r9, rcx
	ret
	.cfi_endproc
	.size	ftrace_asked, . - ftrace_asked
	.section .note.GNU-stack, "", @progbits
