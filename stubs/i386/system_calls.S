/* SPDX-License-Identifier: MIT */
/* From the stub of a system call: `struct asked`, followed by the return address in the stub. A system
 * call changes no register but eax, so whether it is done is told by where this returns to. */
	.file	"system_calls.S"
#include "save.h"
	.cfi_sections .eh_frame, .debug_frame
	.text
	.globl	ftrace_asked
	.type	ftrace_asked, @function
	.p2align 4
ftrace_asked:
	.cfi_startproc
	pushl	$0
	.cfi_adjust_cfa_offset 4
	save	ebp, edi, esi, edx, ecx, ebx, eax
	movl	%esp, %eax
	call	signal_asked
	cmpl	$0, 28(%esp)
	je	1f
	addl	$7, 32(%esp)		/* behind the call */
1:	restore	eax, ebx, ecx, edx, esi, edi, ebp
	leal	4(%esp), %esp
	.cfi_adjust_cfa_offset -4
	ret
	.cfi_endproc
	.size	ftrace_asked, . - ftrace_asked
	.section .note.GNU-stack, "", @progbits
