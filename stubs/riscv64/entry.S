/* SPDX-License-Identifier: MIT */
/* A tracer's entry points in riscv64 code. The site is
 *
 *     auipc t0, %pcrel_hi(ftrace_caller)
 *     jalr  t0, %pcrel_lo(ftrace_caller)(t0)
 *
 * in front of everything else that its function does, so that there
 *
 *     t0   is the address after the site
 *     ra   is where the function will return to (its parent)
 *     sp   is its frame's slot
 *
 * Nothing is changed but t0 when a function is entered, and nothing when it returns. Floating-point and
 * vector registers hold arguments and results (RISC-V psABI, "Standard Vector Calling Convention Variant"
 * for the latter); no code of the runtime uses them.
 */

	.file	"entry.S"
#include "offsets.h"
#include "save.h"
	.cfi_sections .eh_frame, .debug_frame
	.text
/* What a site calls, or the `thunk` of a PLT entry: the ip is t0, or in the thunk's last word relative
 * to that. */
	.macro	caller thunk=0
	.cfi_startproc
	.cfi_return_column t0		/* the function expects its parent in ra */
#ifndef NOP
	save
	.if	\thunk
	lw	a0, 20(t0)
	add	a0, a0, t0
	.else
	mv	a0, t0
	.endif
	addi	a1, sp, SAVED_PARENT	/* location of the return address */
	addi	a2, sp, SAVED		/* the slot */
	mv	a3, sp			/* arguments, if wanted */
	call	trace_entry
	restore
#endif
	jr	t0
	.cfi_endproc
	.endm

/* From the thunk of a PLT entry, which does what a site does, and then what the entry did:
 *
 *     auipc t0, %pcrel_hi(ftrace_plt_caller); jalr t0, %pcrel_lo(ftrace_plt_caller)(t0)
 *     auipc t3, slot; ld t3, slot(t3); auipc t1, entry; addi t1, t1, entry; jr t3
 *     .word ip - the address after the jalr
 *
 * The ip is the entry's: thunks have no names. */
#include "callers.h"

/* An unwinder that meets return_to_handler evaluates an expression for the function's real caller;
 * the CFA, which is the slot, is on its stack: unwind.h. But a signal handler's return address
 * (li a7, 139, which is rt_sigreturn; ecall) is recognised by these instructions alone
 * (riscv_fallback_frame_state() of libgcc), and so has to be exact.
 *
 * ra & -256 is return_to_handler: ra is what the function had, or the address after the call below. The
 * distance to `process.threads` follows it.
 */
#define ORIGIN 0x71, 0x00, 0x0b, 0x00, 0xff, 0x1a	/* DW_OP_breg1 0, const2s -256, and */
#define VAL_EXPRESSION 0x16, 1			/* of ra; bytes */
#define ORIGIN_SIZE 6
#define DISTANCE 0x80, 0x02
#define DISTANCE_SIZE 2
#define RESULT_SIZE 14
#define SLOT 0x12				/* dup: slot slot */
#define SLOT_SIZE 1

	.macro	search_result
	.cfi_escape 0x12, 0x94, 4		/* dup deref_size 4: ret insn */
	.cfi_escape 0x0c, 0x93, 0x08, 0xb0, 0x08 /* const4u: li a7, 139 */
	.cfi_escape 0x29, 0x28, 2, 0		/* eq bra -> end: ret */
	.cfi_escape 0x31, 0x1c			/* lit1 minus: ret - 1 */
	.endm
#include "unwind.h"

/*     | ra, the place | a0 ... a7 | t0 ... t6 | ...
 *       ^ sp            ^ 8         ^ 72        ^ 128, the slot: sp, where it was
 *
 * trace_return() writes to the place before it takes the frame off the ret_stack. So unwinding
 * from within this function looks there first.
 */
#define KEPT 128
	.type	return_to_handler, @function
	.globl	return_to_handler
	.p2align 8
	.skip	252
	.cfi_startproc
	.cfi_signal_frame
	.cfi_def_cfa sp, 0
	.cfi_escape VAL_EXPRESSION, BYTES(UNFOLLOWED + SLOT_SIZE + SEARCH)
	unfollowed
	.cfi_escape SLOT
	search
	nop					/* unwinders look up the address before */
return_to_handler:
	addi	sp, sp, -KEPT
	.cfi_adjust_cfa_offset KEPT
	sd	ra, 0(sp)
	.cfi_escape VAL_EXPRESSION, BYTES(UNFOLLOWED + 11 + ORIGIN_SIZE + SLOT_SIZE + SEARCH)
	unfollowed
	.cfi_escape 0x12			/* dup                        CFA CFA */
	.cfi_escape 0x08, KEPT, 0x1c, 0x06	/* const1u minus deref        CFA held */
	.cfi_escape 0x12			/* dup */
	.cfi_escape ORIGIN, 0x2e		/* (origin) ne */
	.cfi_escape 0x28, SLOT_SIZE + TO_RESULT + 1, 0	/* bra -> result             held */
	.cfi_escape 0x13, SLOT			/* drop                       CFA; slot slot */
	search
#if defined(PROBES) || defined(REGS)
	call	ftrace_returned
#else
	arguments sd, 8
	sd	t0, 72(sp)
	temporaries sd, 80
	mv	a2, a0				/* the value, if wanted */
	mv	a0, sp				/* the place */
	addi	a1, sp, KEPT			/* the slot */
	call	trace_return			/* ra & -256: less than 256 bytes from the start */
	arguments ld, 8
	ld	t0, 72(sp)
	temporaries ld, 80
#endif
	ld	ra, 0(sp)
	.cfi_escape VAL_EXPRESSION, 4, 0x71, 0x00, 0x31, 0x1c	/* breg1 0, lit1 minus: ra - 1 */
	addi	sp, sp, KEPT
	.cfi_adjust_cfa_offset -KEPT
	ret
	.cfi_endproc
	.size	return_to_handler, . - return_to_handler
	.org	return_to_handler + 256
	.quad	process + PROCESS_THREADS - (return_to_handler + 256)	/* &process.threads */

/* The process begins here: sp points to argc, a0 is what the dynamic linker registers for exit, 0
 * where there is none (the kernel leaves that). */
	.globl	ftrace_start
	.type	ftrace_start, @function
	.p2align 4
ftrace_start:
	.cfi_startproc
	.cfi_undefined ra
	lla	t0, ended
	sd	a0, 0(t0)
	mv	a0, sp
	call	trace_start
	lla	a0, ftrace_ended
	lla	t0, ftpatch_config
	ld	t1, STUB_CONFIG_SELF(t0)
	ld	t2, STUB_CONFIG_ENTRY(t0)
	sub	t1, t0, t1		/* bias */
	add	t1, t1, t2
	jr	t1
	.cfi_endproc
	.size	ftrace_start, . - ftrace_start

/* How a program and a library end. */
	.macro	call_ended
	addi	sp, sp, -16
	.cfi_adjust_cfa_offset 16
	sd	ra, 8(sp)
	.cfi_rel_offset ra, 8
	call	trace_ended
	ld	ra, 8(sp)
	.cfi_restore ra
	addi	sp, sp, 16
	.cfi_adjust_cfa_offset -16
	.endm

	.type	ftrace_ended, @function
ftrace_ended:
	.cfi_startproc
	call_ended
	lla	t0, ended
	ld	t1, 0(t0)
	beqz	t1, 1f
	jr	t1
1:	ret
	.cfi_endproc
	.size	ftrace_ended, . - ftrace_ended

/* In a shared library: what its DT_INIT and DT_FINI name. glibc passes argc, argv and the environment to
 * the former, and to the library's own, if there is one. */
	.globl	ftrace_library_start
	.type	ftrace_library_start, @function
ftrace_library_start:
	.cfi_startproc
	addi	sp, sp, -32
	.cfi_adjust_cfa_offset 32
	sd	ra, 24(sp)
	.cfi_rel_offset ra, 24
	sd	a0, 0(sp)
	sd	a1, 8(sp)
	sd	a2, 16(sp)
	call	library_start
	ld	a0, 0(sp)
	ld	a1, 8(sp)
	ld	a2, 16(sp)
	ld	ra, 24(sp)
	.cfi_restore ra
	addi	sp, sp, 32
	.cfi_adjust_cfa_offset -32
	lla	t0, ftpatch_config
	ld	t1, STUB_CONFIG_ENTRY(t0)
	j	1f
	.cfi_endproc
	.size	ftrace_library_start, . - ftrace_library_start

	.globl	ftrace_library_ended
	.type	ftrace_library_ended, @function
ftrace_library_ended:
	.cfi_startproc
	call_ended
	lla	t0, ftpatch_config
	ld	t1, STUB_CONFIG_ENDED(t0)
1:	beqz	t1, 2f			/* the library's own */
	ld	t2, STUB_CONFIG_SELF(t0)
	sub	t0, t0, t2		/* bias */
	add	t1, t1, t0
	jr	t1
2:	ret
	.cfi_endproc
	.size	ftrace_library_ended, . - ftrace_library_ended

	.local	ended
	.comm	ended, 8, 8
	.section .note.GNU-stack, "", @progbits
