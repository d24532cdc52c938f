/* SPDX-License-Identifier: MIT */
/* i386: _start and the two system calls of the programs without libc. */
	.text
	.globl	_start
	.type	_start, @function
_start:
	xorl	%ebp, %ebp
	movl	%esp, %eax
	andl	$-16, %esp
	subl	$12, %esp
	pushl	%eax
	call	start_c
	.size	_start, . - _start

	.globl	sys_write
	.type	sys_write, @function
sys_write:
	pushl	%ebx
	movl	$4, %eax
	movl	8(%esp), %ebx
	movl	12(%esp), %ecx
	movl	16(%esp), %edx
	int	$0x80
	popl	%ebx
	ret
	.size	sys_write, . - sys_write

	.globl	sys_exit
	.type	sys_exit, @function
sys_exit:
	movl	$252, %eax			/* exit_group */
	movl	4(%esp), %ebx
	int	$0x80
	.size	sys_exit, . - sys_exit

	.section .note.GNU-stack, "", @progbits
