/* SPDX-License-Identifier: MIT */
/* arm64: _start and the two system calls of the programs without libc. */
#include "bti-note.h"
	.text
	.globl	_start
	.type	_start, %function
_start:
	hint	#34				// bti c
	mov	x29, xzr
	mov	x30, xzr
	mov	x0, sp
	bl	start_c
	.size	_start, . - _start

	.globl	sys_write
	.type	sys_write, %function
sys_write:
	hint	#34				// bti c
	mov	x8, #64
	svc	#0
	ret
	.size	sys_write, . - sys_write

	.globl	sys_exit
	.type	sys_exit, %function
sys_exit:
	hint	#34				// bti c
	mov	x8, #94				// exit_group
	svc	#0
	.size	sys_exit, . - sys_exit

	.section .note.GNU-stack, "", %progbits
	BTI_NOTE
