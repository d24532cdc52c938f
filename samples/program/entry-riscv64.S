/* SPDX-License-Identifier: MIT */
/*
 * riscv64: a site is `auipc t0; jalr t0`, so ra is the function's own return address and t0 the
 * way back to it. ftrace_caller counts its calls and preserves every other register.
 * MCOUNT: the site is an ordinary call, as of _mcount, and ra the way back.
 */
	.text
	.globl	ftrace_caller
	.type	ftrace_caller, @function
	.balign	16
ftrace_caller:
	addi	sp, sp, -16
	sd	t1, 0(sp)
	sd	t2, 8(sp)
	lla	t1, ftrace_calls
	li	t2, 1
	amoadd.d zero, t2, (t1)
	ld	t1, 0(sp)
	ld	t2, 8(sp)
	addi	sp, sp, 16
#ifdef MCOUNT
	ret
#else
	jr	t0
#endif
	.size	ftrace_caller, . - ftrace_caller

	.globl	_mcount
	.type	_mcount, @function
	.balign	16
_mcount:
	ret
	.size	_mcount, . - _mcount

	.bss
	.globl	ftrace_calls
	.hidden	ftrace_calls
	.type	ftrace_calls, @object
	.balign	64				# a line of its own, away from code
ftrace_calls:
	.skip	64
	.size	ftrace_calls, 8

	.section .note.GNU-stack, "", @progbits
