/* SPDX-License-Identifier: MIT */
/* A tracer's entry points in arm64 code. The site is
 *
 *     mov x9, x30
 *     bl  ftrace_caller
 *
 * in front of everything else that its function does, so that there
 *
 *     x9   is where the function will return to (its parent)
 *     x30  is the address after the site
 *     sp   is its frame's slot
 *
 * and the function expects x30 to be its return address when it goes on. Nothing else is changed but
 * x9 and the flags when a function is entered, and x9 to x17 and the flags when it returns: its caller
 * counts on none of these (AAPCS64, "General-purpose Registers").
 *
 * Ways out are `ret`, with whatever register: a processor with BTI lets it go anywhere.
 */

	.file	"entry.S"
#include "offsets.h"
#include "save.h"
	.cfi_sections .eh_frame, .debug_frame
	.text
/* What a site calls, or the `thunk` of a PLT entry: the ip is x30, or in the thunk's last word relative
 * to that. */
	.macro	caller thunk=0
	.cfi_startproc
	.cfi_return_column x16		/* the function expects its parent in x30 */
	.cfi_register x16, x30
	.cfi_register x30, x9
#ifdef NOP
	mov	x17, x30
	.cfi_register x16, x17
	mov	x30, x9
	.cfi_same_value x30
	ret	x17
#else
	save
	.if	\thunk
	ldrsw	x0, [x30, #20]
	add	x0, x30, x0
	.else
	mov	x0, x30
	.endif
	add	x1, sp, #168		/* location of the return address */
	add	x2, sp, #176		/* the slot */
	add	x3, sp, #16		/* arguments, if wanted */
	bl	trace_entry
	restore
	ret	x9
#endif
	.cfi_endproc
	.endm

/* From the thunk of a PLT entry, which does what a site does, and then what the entry did:
 *
 *     mov x9, x30
 *     bl  ftrace_plt_caller
 *     adrp x16, slot; ldr x17, [x16, slot]; add x16, x16, slot; autia1716 or nop; br x17
 *     .word ip - the address after the bl
 *
 * The ip is the entry's: thunks have no names. */
#include "callers.h"

/* An unwinder that meets return_to_handler evaluates an expression for the function's real caller;
 * the CFA, which is the slot, is on its stack: unwind.h. But a signal handler's return address
 * (mov x8, #139, which is rt_sigreturn; svc #0) is recognised by these instructions alone
 * (aarch64_fallback_frame_state() of libgcc), and so has to be exact.
 *
 * x30 & 0xffffffffffc0 is return_to_handler, wherever the file is loaded: x30 is what the function
 * stored, perhaps signed (PAC, from bit 48 on); the distance to `process.threads` follows it.
 */
#define BITS 0xc0, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00
#define ORIGIN 0x8e, 0x00, 0x0e, BITS, 0x1a	/* DW_OP_breg30 0, const8u BITS, and */
#define VAL_EXPRESSION 0x16, 30			/* of x30; bytes */
#define ORIGIN_SIZE 12
#define DISTANCE 0x80, 0x01
#define DISTANCE_SIZE 2
#define RESULT_SIZE 14
#define SLOT 0x12				/* dup: slot slot */
#define SLOT_SIZE 1

	.macro	search_result
	.cfi_escape 0x12, 0x94, 4		/* dup deref_size 4: ret insn */
	.cfi_escape 0x0c, 0x68, 0x11, 0x80, 0xd2 /* const4u: mov x8, #139 */
	.cfi_escape 0x29, 0x28, 2, 0		/* eq bra -> end: ret */
	.cfi_escape 0x31, 0x1c			/* lit1 minus: ret - 1 */
	.endm
#include "unwind.h"

/*     | x29, place | x0 ... x8 | ...
 *       ^ sp                     ^ sp + 96, where it was
 *
 * trace_return() writes to the place before it takes the frame off the ret_stack. So unwinding
 * from within this function looks there first.
 */
	.type	return_to_handler, @function
	.globl	return_to_handler
	.p2align 6
	.skip	60
	.cfi_startproc
	.cfi_signal_frame
	.cfi_def_cfa sp, 0
	.cfi_escape VAL_EXPRESSION, BYTES(UNFOLLOWED + SLOT_SIZE + SEARCH)
	unfollowed
	.cfi_escape SLOT
	search
	nop					/* unwinders look up the address before */
return_to_handler:
	stp	x29, x30, [sp, #-96]!
	.cfi_adjust_cfa_offset 96
	.cfi_rel_offset x29, 0
	.cfi_escape VAL_EXPRESSION, BYTES(UNFOLLOWED + 23 + SLOT_SIZE + SEARCH)
	unfollowed
	.cfi_escape 0x12			/*  0: dup                    CFA CFA */
	.cfi_escape 0x08, 88, 0x1c, 0x06	/*  1: const1u minus deref    CFA held */
	.cfi_escape 0x12			/*  5: dup */
	.cfi_escape ORIGIN, 0x2e		/*  6: (origin) ne */
	.cfi_escape 0x28, SLOT_SIZE + TO_RESULT + 1, 0	/* 19: bra -> result         held */
	.cfi_escape 0x13, SLOT			/* 22: drop                   CFA; slot slot */
	search
#if defined(PROBES) || defined(REGS)
	mov	x29, sp
	bl	ftrace_returned
#else
	stp	x0, x1, [sp, #16]
	stp	x2, x3, [sp, #32]
	stp	x4, x5, [sp, #48]
	stp	x6, x7, [sp, #64]
	str	x8, [sp, #80]
	mov	x29, sp
	mov	x2, x0				/* the value, if wanted */
	add	x0, sp, #8			/* the place */
	add	x1, sp, #96			/* the slot */
	bl	trace_return			/* x30 & BITS: less than 64 bytes from the start */
	ldp	x0, x1, [sp, #16]
	ldp	x2, x3, [sp, #32]
	ldp	x4, x5, [sp, #48]
	ldp	x6, x7, [sp, #64]
	ldr	x8, [sp, #80]
#endif
	ldp	x29, x30, [sp], #96
	.cfi_adjust_cfa_offset -96
	.cfi_same_value x29
	.cfi_escape VAL_EXPRESSION, 4, 0x8e, 0x00, 0x31, 0x1c	/* breg30 0, lit1 minus: x30 - 1 */
	ret
	.cfi_endproc
	.size	return_to_handler, . - return_to_handler
	.org	return_to_handler + 128
	.quad	process + PROCESS_THREADS - (return_to_handler + 128)	/* &process.threads */

/* The process begins here: sp points to argc, x0 is what the dynamic linker registers for exit, 0
 * where there is none (the kernel leaves that). It comes by `br`, from whatever register. */
	.globl	ftrace_start
	.type	ftrace_start, @function
ftrace_start:
	.cfi_startproc
	.cfi_undefined x30
	hint	#38			/* bti jc */
	adrp	x1, ended
	str	x0, [x1, #:lo12:ended]
	mov	x0, sp
	bl	trace_start
	adrp	x0, ftrace_ended
	add	x0, x0, #:lo12:ftrace_ended
	adrp	x1, ftpatch_config
	add	x1, x1, #:lo12:ftpatch_config
	ldr	x2, [x1, #STUB_CONFIG_SELF]
	ldr	x3, [x1, #STUB_CONFIG_ENTRY]
	sub	x2, x1, x2		/* bias */
	add	x16, x2, x3
	br	x16			/* lands on a bti c, if there is one */
	.cfi_endproc
	.size	ftrace_start, . - ftrace_start

/* How a program and a library end. */
	.macro	call_ended
	hint	#34			/* bti c */
	stp	x29, x30, [sp, #-16]!
	.cfi_adjust_cfa_offset 16
	.cfi_rel_offset x29, 0
	.cfi_rel_offset x30, 8
	mov	x29, sp
	bl	trace_ended
	ldp	x29, x30, [sp], #16
	.cfi_adjust_cfa_offset -16
	.cfi_restore x29
	.cfi_restore x30
	.endm

	.type	ftrace_ended, @function
ftrace_ended:
	.cfi_startproc
	call_ended
	adrp	x16, ended
	ldr	x16, [x16, #:lo12:ended]
	cbz	x16, 1f
	br	x16
1:	ret
	.cfi_endproc
	.size	ftrace_ended, . - ftrace_ended

/* In a shared library: what its DT_INIT and DT_FINI name. glibc passes argc, argv and the environment to
 * the former, and to the library's own, if there is one. */
	.globl	ftrace_library_start
	.type	ftrace_library_start, @function
ftrace_library_start:
	.cfi_startproc
	hint	#34			/* bti c */
	stp	x29, x30, [sp, #-48]!
	.cfi_adjust_cfa_offset 48
	.cfi_rel_offset x29, 0
	.cfi_rel_offset x30, 8
	stp	x0, x1, [sp, #16]
	str	x2, [sp, #32]
	mov	x29, sp
	bl	library_start
	ldp	x0, x1, [sp, #16]
	ldr	x2, [sp, #32]
	ldp	x29, x30, [sp], #48
	.cfi_adjust_cfa_offset -48
	.cfi_restore x29
	.cfi_restore x30
	mov	x9, #STUB_CONFIG_ENTRY
	b	1f
	.cfi_endproc
	.size	ftrace_library_start, . - ftrace_library_start

	.globl	ftrace_library_ended
	.type	ftrace_library_ended, @function
ftrace_library_ended:
	.cfi_startproc
	call_ended
	mov	x9, #STUB_CONFIG_ENDED
1:	adrp	x10, ftpatch_config
	add	x10, x10, #:lo12:ftpatch_config
	ldr	x16, [x10, x9]		/* the library's own */
	cbz	x16, 2f
	ldr	x9, [x10, #STUB_CONFIG_SELF]
	sub	x10, x10, x9		/* bias */
	add	x16, x16, x10
	br	x16			/* lands on a bti c, if there is one */
2:	ret
	.cfi_endproc
	.size	ftrace_library_ended, . - ftrace_library_ended

	.local	ended
	.comm	ended, 8, 8
	.section .note.GNU-stack, "", @progbits
