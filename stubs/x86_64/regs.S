/* SPDX-License-Identifier: MIT */
/* For a user's functions that take registers: all are saved in a struct ftrace_regs, and restored but
 * for rsp. rbx has the stack pointer meanwhile, for C wants that aligned. */
	.file	"regs.S"
#include "offsets.h"
#include "save.h"
	.cfi_sections .eh_frame, .debug_frame
	.text
/* All registers. Of the flags those that code computes with: neither is TF shown, which may be a
 * debugger's that steps through this, nor changed. */
	.macro	save_shown
	pushq	$0
	.cfi_adjust_cfa_offset 8
	save	r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rsp, rbx, rdx, rcx, rax
	lahf				/* SF, ZF, AF, PF, CF */
	seto	%al
	movzbl	%ah, %ecx
	movzbl	%al, %eax
	shll	$11, %eax		/* OF */
	orl	%ecx, %eax
	movq	%rax, FTRACE_REGS_FLAGS(%rsp)
	.endm

	.macro	aligned function
	movq	%rsp, %rbx
	.cfi_rel_offset rbx, FTRACE_REGS_BX
	.cfi_def_cfa_register rbx
	andq	$-16, %rsp
	call	\function
	movq	%rbx, %rsp
	.cfi_def_cfa_register rsp
	movl	FTRACE_REGS_FLAGS(%rsp), %ecx
	btl	$11, %ecx
	setc	%al
	movb	%cl, %ah
	addb	$0x7f, %al		/* OF */
	sahf				/* the others */
	restore_general
	.cfi_restore rbx
	leaq	8(%rsp), %rsp
	.cfi_adjust_cfa_offset -8
	.endm

/* From a site: | address after the site's call | parent ...
 *                ^ rsp                            ^ the frame's slot
 *
 * The address after the call is regs->ip, and where this returns to. */
	.globl	ftrace_caller
	.type	ftrace_caller, @function
	.p2align 6
ftrace_caller:
	.cfi_startproc
	pushq	$0			/* regs->reserved */
	.cfi_adjust_cfa_offset 8
	save_shown
	movq	FTRACE_REGS_IP(%rsp), %rdi
	leaq	FTRACE_REGS_IP+8(%rsp), %rsi	/* location of the return address */
	movq	%rsi, %rdx		/* which is the slot */
	movq	%rsi, SP(%rsp)
	movq	%rsp, %rcx
	aligned	trace_entry
	leaq	8(%rsp), %rsp
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller

/* From return_to_handler: | back into it, regs->reserved | the slot, regs->ip | ...
 *                           ^ rsp                                               ^ rsp of the program */
	.globl	ftrace_returned
	.type	ftrace_returned, @function
ftrace_returned:
	.cfi_startproc
	save_shown
	leaq	FTRACE_REGS_IP(%rsp), %rdi	/* where the return address goes */
	movq	%rdi, %rsi		/* which is the slot */
	leaq	8(%rdi), %rax
	movq	%rax, SP(%rsp)
	movq	%rsp, %rdx
	aligned	trace_return
	ret
	.cfi_endproc
	.size	ftrace_returned, . - ftrace_returned
	.section .note.GNU-stack, "", @progbits
