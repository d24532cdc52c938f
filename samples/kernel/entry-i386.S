/* SPDX-License-Identifier: MIT */
/* i386: head, __fentry__ and the tracers' entries, after arch/x86/kernel/ftrace_32.S. */

	.section .head.text, "ax"
	.globl	startup_32
	.type	startup_32, @function
startup_32:
	movl	$init_stack_end, %esp
	xorl	%ebp, %ebp
	call	start_kernel
1:	hlt
	jmp	1b
	.size	startup_32, . - startup_32

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

	.globl	ftrace_caller, ftrace_call, ftrace_graph_call
	.type	ftrace_caller, @function
	.balign	16, 0xcc
ftrace_caller:
	pushl	%ebp
	movl	%esp, %ebp
	pushl	%eax
	pushl	%ecx
	pushl	%edx
	movl	4(%ebp), %eax			/* ip, past the site's call */
	movl	8(%ebp), %edx			/* parent ip */
	movl	function_trace_op, %ecx
	subl	$5, %eax
ftrace_call:
	call	ftrace_stub
	popl	%edx
	popl	%ecx
	popl	%eax
	popl	%ebp
ftrace_graph_call:
	jmp	ftrace_stub
	.size	ftrace_caller, . - ftrace_caller

/* Weak, as in Linux: or gas makes the jump above two bytes long, too short to be patched. */
	.weak	ftrace_stub
	.type	ftrace_stub, @function
	.balign	4, 0xcc
ftrace_stub:
	ret
	int3
	.size	ftrace_stub, . - ftrace_stub

	.globl	ftrace_regs_caller, ftrace_regs_call
	.type	ftrace_regs_caller, @function
	.balign	16, 0xcc
ftrace_regs_caller:
	pushfl
	pushl	%ebp
	movl	%esp, %ebp
	pushl	%eax
	pushl	%ebx
	pushl	%ecx
	pushl	%edx
	pushl	%esi
	pushl	%edi
	movl	8(%ebp), %eax
	movl	12(%ebp), %edx
	movl	function_trace_op, %ecx
	subl	$5, %eax
	pushl	%esp
ftrace_regs_call:
	call	ftrace_stub
	addl	$4, %esp
	popl	%edi
	popl	%esi
	popl	%edx
	popl	%ecx
	popl	%ebx
	popl	%eax
	popl	%ebp
	popfl
	jmp	ftrace_graph_call
	.size	ftrace_regs_caller, . - ftrace_regs_caller

	.globl	ftrace_graph_caller
	.type	ftrace_graph_caller, @function
	.balign	16, 0xcc
ftrace_graph_caller:
	pushl	%eax
	pushl	%ecx
	pushl	%edx
	movl	12(%esp), %eax
	leal	16(%esp), %edx
	xorl	%ecx, %ecx
	call	ftrace_stub
	popl	%edx
	popl	%ecx
	popl	%eax
	ret
	int3
	.size	ftrace_graph_caller, . - ftrace_graph_caller

	.data
	.globl	function_trace_op
	.type	function_trace_op, @object
	.balign	4
function_trace_op:
	.long	0
	.size	function_trace_op, 4

	.bss
	.balign	16
	.skip	0x1000
init_stack_end:

	.section .note.GNU-stack, "", @progbits
