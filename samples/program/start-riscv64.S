/* SPDX-License-Identifier: MIT */
/* riscv64: _start and the two system calls of the programs without libc. */
	.text
	.globl	_start
	.type	_start, @function
_start:
	.option	push
	.option	norelax				# what linkers relax counts from gp itself
	lla	gp, __global_pointer$
	.option	pop
	mv	s0, zero
	mv	ra, zero
	mv	a0, sp
	andi	sp, sp, -16
	call	start_c
	.size	_start, . - _start

	.globl	sys_write
	.type	sys_write, @function
sys_write:
	li	a7, 64
	ecall
	ret
	.size	sys_write, . - sys_write

	.globl	sys_exit
	.type	sys_exit, @function
sys_exit:
	li	a7, 94				# exit_group
	ecall
	.size	sys_exit, . - sys_exit

	.section .note.GNU-stack, "", @progbits
