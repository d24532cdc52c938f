/* SPDX-License-Identifier: MIT */
/* x86-64: head, __fentry__ and the tracers' entries, after arch/x86/kernel/ftrace_64.S. */

	.section .head.text, "ax"
	.globl	startup_64
	.type	startup_64, @function
startup_64:
	leaq	init_stack_end(%rip), %rsp
	xorl	%ebp, %ebp
	call	start_kernel
1:	hlt
	jmp	1b
	.size	startup_64, . - startup_64

	.text
	.globl	cpu_halt
	.type	cpu_halt, @function
	.balign	16, 0xcc
cpu_halt:
	hlt
	ret
	int3
	.size	cpu_halt, . - cpu_halt

	.globl	__fentry__
	.type	__fentry__, @function
	.balign	16, 0xcc
__fentry__:
	ret
	int3
	.size	__fentry__, . - __fentry__

	.globl	ftrace_stub
	.type	ftrace_stub, @function
	.balign	16, 0xcc
ftrace_stub:
	endbr64
	ret
	int3
	.size	ftrace_stub, . - ftrace_stub

/* rdi = ip of the site, rsi = where the traced function returns to; the flags are free there. */
#define INSN 5
#define FRAME 0x50
	.macro	save_mcount_regs added=0
	subq	$FRAME, %rsp
	movq	%rax, 0x00(%rsp)
	movq	%rcx, 0x08(%rsp)
	movq	%rdx, 0x10(%rsp)
	movq	%rsi, 0x18(%rsp)
	movq	%rdi, 0x20(%rsp)
	movq	%r8, 0x28(%rsp)
	movq	%r9, 0x30(%rsp)
	movq	%r10, 0x38(%rsp)
	movq	%r11, 0x40(%rsp)
	movq	FRAME+\added(%rsp), %rdi
	subq	$INSN, %rdi
	movq	FRAME+8+\added(%rsp), %rsi
	.endm

	.macro	restore_mcount_regs
	movq	0x40(%rsp), %r11
	movq	0x38(%rsp), %r10
	movq	0x30(%rsp), %r9
	movq	0x28(%rsp), %r8
	movq	0x20(%rsp), %rdi
	movq	0x18(%rsp), %rsi
	movq	0x10(%rsp), %rdx
	movq	0x08(%rsp), %rcx
	movq	0x00(%rsp), %rax
	addq	$FRAME, %rsp
	.endm

	.globl	ftrace_caller, ftrace_call, ftrace_caller_end
	.type	ftrace_caller, @function
	.balign	16, 0xcc
ftrace_caller:
	save_mcount_regs
	movq	function_trace_op(%rip), %rdx
	movq	%rsp, %rcx
ftrace_call:
	call	ftrace_stub
	restore_mcount_regs
ftrace_caller_end:
	ret
	int3
	.size	ftrace_caller, . - ftrace_caller

	.globl	ftrace_regs_caller, ftrace_regs_call, ftrace_regs_caller_end
	.type	ftrace_regs_caller, @function
	.balign	16, 0xcc
ftrace_regs_caller:
	pushfq
	save_mcount_regs 8
	movq	function_trace_op(%rip), %rdx
	movq	%rsp, %rcx
ftrace_regs_call:
	call	ftrace_stub
	restore_mcount_regs
	popfq
ftrace_regs_caller_end:
	ret
	int3
	.size	ftrace_regs_caller, . - ftrace_regs_caller

	.globl	ftrace_graph_caller
	.type	ftrace_graph_caller, @function
	.balign	16, 0xcc
ftrace_graph_caller:
	save_mcount_regs
	leaq	FRAME+8(%rsp), %rsi
	xorl	%edx, %edx
	call	ftrace_stub
	restore_mcount_regs
	ret
	int3
	.size	ftrace_graph_caller, . - ftrace_graph_caller

	.data
	.globl	function_trace_op
	.type	function_trace_op, @object
	.balign	8
function_trace_op:
	.quad	0
	.size	function_trace_op, 8

	.bss
	.balign	16
	.skip	0x1000
init_stack_end:

	.section .note.GNU-stack, "", @progbits
