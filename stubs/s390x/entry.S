/* SPDX-License-Identifier: MIT */
/* A tracer's entry points in s390x code. The site is
 *
 *     brasl %r1, ftrace_caller
 *
 * in front of everything else that its function does, so that there
 *
 *     r1   is the address after the site
 *     r14  is where the function will return to (its parent)
 *     r15  is its frame's slot; the CFA is 160 bytes behind it
 *
 * When a function is entered, r1 and the condition code change, and when it returns, what calls may
 * change and results are not in. Floating-point and vector registers hold arguments and results; no code
 * of the runtime uses them.
 */

	.file	"entry.S"
#include "offsets.h"
#include "save.h"
	.cfi_sections .eh_frame, .debug_frame
	.text
/* What a site calls, or the `thunk` of a PLT entry: the ip is r1, or in the thunk's last word relative
 * to that. */
	.macro	caller thunk=0
	.cfi_startproc
	entered
#ifndef NOP
	save
	.if	\thunk
	lgf	%r2, 14(%r1)
	agr	%r2, %r1
	.else
	lgr	%r2, %r1			/* ip */
	.endif
	la	%r3, SAVED_PARENT(%r15)		/* location of the return address */
	la	%r4, SAVED(%r15)		/* the slot */
	la	%r5, SAVED_ARGUMENTS(%r15)	/* arguments, if wanted */
	brasl	%r14, trace_entry
	restore
#endif
	br	%r1
	.cfi_endproc
	.endm

/* From the thunk of a PLT entry, which does what a site does, and then what the entry did:
 *
 *     brasl %r1, ftrace_plt_caller
 *     larl %r1, slot; lg %r1, 0(%r1); br %r1
 *     .long ip - the address after the brasl
 *
 * The ip is the entry's: thunks have no names. */
#include "callers.h"

/* An unwinder that meets return_to_handler evaluates an expression for the function's real caller; the
 * CFA is on its stack: unwind.h. But a signal handler's return address (svc 119, svc 173: sigreturn,
 * rt_sigreturn) is recognised by these instructions alone (s390_fallback_frame_state() of libgcc), and so
 * has to be exact.
 *
 * r14 & -256 is return_to_handler: r14 is what the function had, or the address after the call below. The
 * distance to `process.threads` follows it.
 */
#define ORIGIN 0x7e, 0x00, 0x0b, 0xff, 0x00, 0x1a	/* DW_OP_breg14 0, const2s -256, and */
#define ORIGIN_SIZE 6
#define DISTANCE 0x80, 0x02
#define DISTANCE_SIZE 2
#define VAL_EXPRESSION 0x16, 14			/* of r14; bytes */
#define RESULT_SIZE 19
#define SLOT 0x08, ROOM, 0x1c, 0x12		/* const1u minus dup: slot slot */
#define SLOT_SIZE 4

	.macro	search_result
	.cfi_escape 0x12, 0x94, 2, 0x12		/* dup deref_size 2 dup: ret insn insn */
	.cfi_escape 0x0a, 0x0a, 119, 0x29	/* const2u: svc 119; eq */
	.cfi_escape 0x16, 0x0a, 0x0a, 173, 0x29	/* swap const2u: svc 173; eq */
	.cfi_escape 0x21, 0x28, 0, 2		/* or bra -> end: ret */
	.cfi_escape 0x31, 0x1c			/* lit1 minus: ret - 1 */
	.endm
#include "unwind.h"

/*     | 160 bytes | the place | r2, r3 | ...
 *       ^ r15       ^ 160       ^ 168    ^ 184, the slot: r15, where it was
 *
 * trace_return() writes to the place before it takes the frame off the ret_stack. So unwinding
 * from within this function looks there first.
 */
	.type	return_to_handler, @function
	.globl	return_to_handler
	.p2align 8
	.skip	254
	.cfi_startproc
	.cfi_signal_frame
	.cfi_def_cfa %r15, ROOM
	.cfi_escape VAL_EXPRESSION, BYTES(UNFOLLOWED + SLOT_SIZE + SEARCH)
	unfollowed
	.cfi_escape SLOT
	search
	nopr					/* unwinders look up the address before */
return_to_handler:
	aghi	%r15, -KEPT
	.cfi_adjust_cfa_offset KEPT
	.cfi_val_offset %r15, -ROOM
	larl	%r14, return_to_handler		/* some functions return by another register */
	stg	%r14, PLACE(%r15)
	.cfi_escape VAL_EXPRESSION, BYTES(UNFOLLOWED + 11 + ORIGIN_SIZE + SLOT_SIZE + SEARCH)
	unfollowed
	.cfi_escape 0x12			/* dup                        CFA CFA */
	.cfi_escape 0x08, KEPT + ROOM - PLACE, 0x1c, 0x06	/* const1u minus deref  CFA held */
	.cfi_escape 0x12			/* dup */
	.cfi_escape ORIGIN, 0x2e		/* (origin) ne */
	.cfi_escape 0x28, SHORT(SLOT_SIZE + TO_RESULT + 1)	/* bra -> result       held */
	.cfi_escape 0x13, SLOT			/* drop                       CFA; slot slot */
	search
#if defined(PROBES) || defined(REGS)
	brasl	%r14, ftrace_returned
#else
	stmg	%r2, %r3, RESULTS(%r15)
	lgr	%r4, %r2			/* the value, if wanted */
	la	%r2, PLACE(%r15)
	la	%r3, KEPT(%r15)			/* the slot */
	brasl	%r14, trace_return		/* r14 & -256: less than 256 bytes from the start */
	lmg	%r2, %r3, RESULTS(%r15)
#endif
	lg	%r14, PLACE(%r15)
	.cfi_escape VAL_EXPRESSION, 4, 0x7e, 0x00, 0x31, 0x1c	/* breg14 0, lit1 minus: r14 - 1 */
	la	%r15, KEPT(%r15)
	.cfi_adjust_cfa_offset -KEPT
	.cfi_same_value %r15
	br	%r14
	.cfi_endproc
	.size	return_to_handler, . - return_to_handler
	.org	return_to_handler + 256
	.quad	process + PROCESS_THREADS - (return_to_handler + 256)	/* &process.threads */

/* The process begins here: r15 points to argc, r14 is what the dynamic linker has called at exit, 0 where
 * there is none (the kernel leaves that). */
	.globl	ftrace_start
	.type	ftrace_start, @function
	.p2align 4
ftrace_start:
	.cfi_startproc
	.cfi_undefined %r14
	larl	%r1, ended
	stg	%r14, 0(%r1)
	lgr	%r2, %r15
	aghi	%r15, -ROOM
	.cfi_adjust_cfa_offset ROOM
	brasl	%r14, trace_start
	aghi	%r15, ROOM
	.cfi_adjust_cfa_offset -ROOM
	larl	%r14, ftrace_ended
	larl	%r1, ftpatch_config
	lg	%r2, STUB_CONFIG_ENTRY(%r1)
	slg	%r2, STUB_CONFIG_SELF(%r1)
	agr	%r1, %r2
	br	%r1
	.cfi_endproc
	.size	ftrace_start, . - ftrace_start

/* How a program and a library end. */
	.macro	call_ended
	stg	%r14, 112(%r15)
	.cfi_offset %r14, 112 - ROOM
	aghi	%r15, -ROOM
	.cfi_adjust_cfa_offset ROOM
	.cfi_val_offset %r15, -ROOM
	brasl	%r14, trace_ended
	aghi	%r15, ROOM
	.cfi_adjust_cfa_offset -ROOM
	.cfi_same_value %r15
	lg	%r14, 112(%r15)
	.cfi_restore %r14
	.endm

	.type	ftrace_ended, @function
ftrace_ended:
	.cfi_startproc
	call_ended
	larl	%r1, ended
	ltg	%r1, 0(%r1)
	bner	%r1
	br	%r14
	.cfi_endproc
	.size	ftrace_ended, . - ftrace_ended

/* In a shared library: what its DT_INIT and DT_FINI name. glibc passes argc, argv and the environment to
 * the former, and to the library's own, if there is one. */
	.globl	ftrace_library_start
	.type	ftrace_library_start, @function
ftrace_library_start:
	.cfi_startproc
	stg	%r14, 112(%r15)
	.cfi_offset %r14, 112 - ROOM
	aghi	%r15, -KEPT
	.cfi_adjust_cfa_offset KEPT
	.cfi_val_offset %r15, -ROOM
	stmg	%r2, %r4, ROOM(%r15)
	brasl	%r14, library_start
	lmg	%r2, %r4, ROOM(%r15)
	aghi	%r15, KEPT
	.cfi_adjust_cfa_offset -KEPT
	.cfi_same_value %r15
	lg	%r14, 112(%r15)
	.cfi_restore %r14
	larl	%r1, ftpatch_config
	lg	%r5, STUB_CONFIG_ENTRY(%r1)
	j	1f
	.cfi_endproc
	.size	ftrace_library_start, . - ftrace_library_start

	.globl	ftrace_library_ended
	.type	ftrace_library_ended, @function
ftrace_library_ended:
	.cfi_startproc
	call_ended
	larl	%r1, ftpatch_config
	lg	%r5, STUB_CONFIG_ENDED(%r1)
1:	ltgr	%r5, %r5			/* the library's own */
	ber	%r14
	slg	%r5, STUB_CONFIG_SELF(%r1)
	agr	%r1, %r5
	br	%r1
	.cfi_endproc
	.size	ftrace_library_ended, . - ftrace_library_ended

	.local	ended
	.comm	ended, 8, 8
	.section .note.GNU-stack, "", @progbits
