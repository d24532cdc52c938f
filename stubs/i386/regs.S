/* SPDX-License-Identifier: MIT */
/* For a user's functions that take registers: all are saved in a struct ftrace_regs, and restored but
 * for esp. ebx has the stack pointer meanwhile, for C wants that aligned. */
	.file	"regs.S"
#include "offsets.h"
#include "save.h"
	.cfi_sections .eh_frame, .debug_frame
	.text
/* All registers. Of the flags those that code computes with: neither is TF shown, which may be a
 * debugger's that steps through this, nor changed. */
	.macro	save_shown
	pushl	$0
	.cfi_adjust_cfa_offset 4
	save	edi, esi, ebp, esp, ebx, edx, ecx, eax
	lahf				/* SF, ZF, AF, PF, CF */
	seto	%al
	movzbl	%ah, %ecx
	movzbl	%al, %eax
	shll	$11, %eax		/* OF */
	orl	%ecx, %eax
	movl	%eax, FTRACE_REGS_FLAGS(%esp)
	.endm

	.macro	restore_shown
	movl	FTRACE_REGS_FLAGS(%esp), %ecx
	btl	$11, %ecx
	setc	%al
	movb	%cl, %ah
	addb	$0x7f, %al		/* OF */
	sahf				/* the others */
	restore	eax, ecx, edx, ebx
	leal	4(%esp), %esp
	.cfi_adjust_cfa_offset -4
	restore	ebp, esi, edi
	leal	4(%esp), %esp
	.cfi_adjust_cfa_offset -4
	.endm

	.macro	aligned
	movl	%esp, %ebx
	.cfi_rel_offset ebx, FTRACE_REGS_BX
	.cfi_def_cfa_register ebx
	andl	$-16, %esp
	.endm

/* From a site: | address after the site's call | parent ...
 *                ^ esp                            ^ the frame's slot
 *
 * The address after the call is regs->ip, and where this returns to. */
	.globl	ftrace_caller
	.type	ftrace_caller, @function
	.p2align 6
ftrace_caller:
	.cfi_startproc
	pushl	$0			/* regs->reserved */
	.cfi_adjust_cfa_offset 4
	save_shown
	movl	FTRACE_REGS_IP(%esp), %eax
	leal	FTRACE_REGS_IP+4(%esp), %edx	/* location of the return address */
	movl	%edx, FTRACE_REGS_SP(%esp)
	cmpb	$0x59, (%eax)		/* popl %ecx: as in entry.S */
	jne	1f
	addl	$4, %edx
1:
	movl	%edx, %ecx		/* which is the slot */
	aligned
	subl	$12, %esp
	pushl	%ebx			/* the registers */
	call	trace_entry
	movl	%ebx, %esp
	.cfi_def_cfa_register esp
	restore_shown
	.cfi_restore ebx
	leal	4(%esp), %esp
	.cfi_adjust_cfa_offset -4
	ret
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller

/* From return_to_handler, which needs the address in the word that its `ret` will take, for no register
 * is free there:
 *
 *     | back into it, regs->reserved | the place, regs->ip | ... that word | ...
 *       ^ esp                                                ^ the slot      ^ esp of the program */
	.globl	ftrace_returned
	.type	ftrace_returned, @function
ftrace_returned:
	.cfi_startproc
	save_shown
	leal	FTRACE_REGS_IP(%esp), %eax	/* the place */
	leal	POPPED(%eax), %edx	/* the slot, but for arguments that were popped */
	leal	4(%edx), %ecx
	movl	%ecx, FTRACE_REGS_SP(%esp)
	movl	%esp, %ecx
	aligned
	call	trace_return
	movl	%ebx, %esp
	.cfi_def_cfa_register esp
	movl	FTRACE_REGS_IP(%esp), %edx
	movl	%edx, FTRACE_REGS_IP+POPPED(%esp)
	restore_shown
	.cfi_restore ebx
	ret
	.cfi_endproc
	.size	ftrace_returned, . - ftrace_returned
	.section .note.GNU-stack, "", @progbits
