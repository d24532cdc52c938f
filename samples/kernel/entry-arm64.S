/* SPDX-License-Identifier: MIT */
/*
 * arm64: head and the tracers' entries, after arch/arm64/kernel/{head,entry-ftrace}.S.
 * CALL_OPS: the ops come from the literal before the function, as from v6.3 on.
 * GRAPH_CALL: with the second patched site, ftrace_graph_call, as before v6.0.
 * TRACER_SECTION: where the entries lie; the far images put them out of a BL's reach.
 */
#ifndef TRACER_SECTION
#define TRACER_SECTION .text
#endif

/* The Image header of Documentation/arm64/booting.rst: 64 bytes, magic at 0x38. */
	.section .head.text, "ax"
	ccmp	x18, #0, #0xd, pl		// "MZ" for UEFI, no effect
	b	primary_entry
	.quad	0				// offset of the image from 2 MB, little-endian
	.long	_kernel_size_le_lo32, _kernel_size_le_hi32	// halves: .quad would be relocated
	.quad	0xa				// little-endian, 4 KB pages, anywhere in memory
	.quad	0, 0, 0
	.ascii	"ARM\x64"
	.long	0

	.globl	primary_entry
	.type	primary_entry, %function
primary_entry:
	adrp	x0, init_stack_end
	add	sp, x0, :lo12:init_stack_end
	mov	x29, xzr
	mov	x30, xzr
	b	start_kernel
	.size	primary_entry, . - primary_entry

	.text
	.globl	cpu_halt
	.type	cpu_halt, %function
	.balign	4
cpu_halt:
	hint	#34				// bti c
	wfi
	ret
	.size	cpu_halt, . - cpu_halt

	.section TRACER_SECTION, "ax"
	.globl	ftrace_stub
	.type	ftrace_stub, %function
	.balign	4
ftrace_stub:
	hint	#34				// bti c
	ret
	.size	ftrace_stub, . - ftrace_stub

#define FREGS 0x80
/* At a site: x9 = LR of the traced function, x30 = behind the site's BL. */
	.macro	save_args
	sub	sp, sp, #(FREGS + 16)
	stp	x0, x1, [sp, #0x00]
	stp	x2, x3, [sp, #0x10]
	stp	x4, x5, [sp, #0x20]
	stp	x6, x7, [sp, #0x30]
	str	x8, [sp, #0x40]
	stp	x9, x30, [sp, #0x50]
	stp	x29, x9, [sp, #FREGS]
	add	x29, sp, #FREGS
	.endm

	.macro	restore_args
	ldp	x0, x1, [sp, #0x00]
	ldp	x2, x3, [sp, #0x10]
	ldp	x4, x5, [sp, #0x20]
	ldp	x6, x7, [sp, #0x30]
	ldr	x8, [sp, #0x40]
	ldp	x30, x9, [sp, #0x50]
	ldr	x29, [sp, #FREGS]
	add	sp, sp, #(FREGS + 16)
	.endm

#ifdef CALL_OPS
	.globl	ftrace_caller
	.balign	4
ftrace_caller:
	hint	#34				// bti c
/* The literal is at an 8-byte boundary, 12 or 16 bytes before the BL. */
	bic	x11, x30, #7
	ldr	x11, [x11, #-16]		// op
	save_args
	sub	x0, x30, #4			// ip of the BL
	mov	x1, x9				// parent ip
	mov	x2, x11
	mov	x3, sp				// fregs
	ldr	x4, [x2, #0]			// op->func
	blr	x4
	restore_args
	ret	x9
	.size	ftrace_caller, . - ftrace_caller
#else
	.globl	ftrace_regs_caller
	.balign	4
ftrace_regs_caller:
	hint	#34				// bti c
	save_args
	str	x10, [sp, #0x48]
	mrs	x10, nzcv
	str	x10, [sp, #0x60]
	b	ftrace_common
	.size	ftrace_regs_caller, . - ftrace_regs_caller

	.globl	ftrace_caller
	.balign	4
ftrace_caller:
	hint	#34				// bti c
	save_args
	b	ftrace_common
	.size	ftrace_caller, . - ftrace_caller

	.globl	ftrace_call
ftrace_common:
	sub	x0, x30, #4			// ip of the BL
	mov	x1, x9				// parent ip
	adrp	x2, function_trace_op
	ldr	x2, [x2, :lo12:function_trace_op]
	mov	x3, sp				// regs
ftrace_call:
	bl	ftrace_stub
#ifdef GRAPH_CALL
	.globl	ftrace_graph_call
ftrace_graph_call:				// "b ftrace_graph_caller" while graph tracing
	nop
#endif
ftrace_common_return:
	restore_args
	ret	x9
	.size	ftrace_common, . - ftrace_common

#ifdef GRAPH_CALL
	.globl	ftrace_graph_caller
	.balign	4
ftrace_graph_caller:
	ldr	x0, [sp, #0x58]
	sub	x0, x0, #4			// ip of the BL
	add	x1, sp, #0x50			// &parent ip
	ldr	x2, [sp, #FREGS]		// parent's frame pointer
	bl	ftrace_stub
	b	ftrace_common_return
	.size	ftrace_graph_caller, . - ftrace_graph_caller
#endif
#endif

	.data
	.globl	function_trace_op
	.type	function_trace_op, %object
	.balign	8
function_trace_op:
	.quad	0
	.size	function_trace_op, 8

	.bss
	.balign	16
	.skip	0x1000
init_stack_end:

	.section .note.GNU-stack, "", %progbits
