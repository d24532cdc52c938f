/* SPDX-License-Identifier: MIT */
/* x86-64: _start and the two system calls of the programs without libc. */
	.text
	.globl	_start
	.type	_start, @function
_start:
	xorl	%ebp, %ebp
	movq	%rsp, %rdi
	andq	$-16, %rsp
	call	start_c
	.size	_start, . - _start

	.globl	sys_write
	.type	sys_write, @function
sys_write:
	movl	$1, %eax
	syscall
	ret
	.size	sys_write, . - sys_write

	.globl	sys_exit
	.type	sys_exit, @function
sys_exit:
	movl	$231, %eax			# exit_group
	syscall
	.size	sys_exit, . - sys_exit

	.section .note.GNU-stack, "", @progbits
