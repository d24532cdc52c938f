/* SPDX-License-Identifier: MIT */
/*
 * riscv64: head and the tracers' entries, after arch/riscv/kernel/{head,mcount-dyn}.S.
 * CALL_OPS: the ops come from the literal before the function, as from v6.16 on.
 */

/* The Image header of Documentation/arch/riscv/boot-image-header.rst: 64 bytes. */
	.section .head.text, "ax"
	.globl	_start
_start:
	.option	push
	.option	rvc
	c.li	s4, -13				# "MZ" for UEFI, no effect
	c.j	_start_kernel
	.option	pop
	.balign	8
	.dword	0x200000			# offset of the image from the start of memory
	.dword	_kernel_size
	.dword	0				# little-endian
	.word	2				# header version 0.2
	.word	0
	.dword	0
	.ascii	"RISCV\0\0\0"
	.balign	4
	.ascii	"RSC\x05"
	.word	0

	.globl	_start_kernel
	.type	_start_kernel, @function
_start_kernel:
	lla	sp, init_stack_end
	mv	s0, zero
	mv	ra, zero
	tail	start_kernel
	.size	_start_kernel, . - _start_kernel

	.text
	.globl	cpu_halt
	.type	cpu_halt, @function
	.balign	4
cpu_halt:
	wfi
	ret
	.size	cpu_halt, . - cpu_halt

/* _mcount has no size and no type, as in Linux; nobody calls it. */
	.globl	ftrace_stub, _mcount
	.type	ftrace_stub, @function
	.balign	4
ftrace_stub:
_mcount:
	ret
	.size	ftrace_stub, . - ftrace_stub

#define FREGS 0x70
/* At a site: ra = return address of the traced function, t0 = behind the site. */
	.macro	save_args
	addi	sp, sp, -FREGS
	sd	t0, 0x00(sp)
	sd	ra, 0x08(sp)
	sd	s0, 0x18(sp)
	sd	a0, 0x28(sp)
	sd	a1, 0x30(sp)
	sd	a2, 0x38(sp)
	sd	a3, 0x40(sp)
	sd	a4, 0x48(sp)
	sd	a5, 0x50(sp)
	sd	a6, 0x58(sp)
	sd	a7, 0x60(sp)
	.endm

	.macro	restore_args
	ld	t0, 0x00(sp)
	ld	ra, 0x08(sp)
	ld	s0, 0x18(sp)
	ld	a0, 0x28(sp)
	ld	a1, 0x30(sp)
	ld	a2, 0x38(sp)
	ld	a3, 0x40(sp)
	ld	a4, 0x48(sp)
	ld	a5, 0x50(sp)
	ld	a6, 0x58(sp)
	ld	a7, 0x60(sp)
	addi	sp, sp, FREGS
	.endm

	.globl	ftrace_caller
	.type	ftrace_caller, @function
	.balign	4
ftrace_caller:
	save_args
	mv	a1, ra				# parent ip
	mv	a3, sp				# fregs
#ifdef CALL_OPS
	addi	a0, t0, -4			# ip of the jalr
	ld	a2, -16(t0)			# op: the literal, 8 bytes before the function
	ld	ra, 0(a2)			# op->func
	jalr	ra
#else
	addi	a0, t0, -8			# ip of the auipc
	lla	a2, function_trace_op
	ld	a2, 0(a2)
	.globl	ftrace_call
ftrace_call:
	call	ftrace_stub
#endif
	restore_args
	jr	t0
	.size	ftrace_caller, . - ftrace_caller

	.data
	.globl	function_trace_op
	.type	function_trace_op, @object
	.balign	8
function_trace_op:
	.dword	0
	.size	function_trace_op, 8

	.bss
	.balign	16
	.skip	0x1000
init_stack_end:

	.section .note.GNU-stack, "", @progbits
