/* SPDX-License-Identifier: MIT */
/* A tracer's entry points in ppc64le code. The site is
 *
 *     mflr r0
 *     bl   ftrace_caller
 *
 * in front of everything else that its function does from the local entry on, so that there
 *
 *     LR   is the address after the site
 *     r0   is where the function will return to (its parent)
 *     r1   is its frame's slot: LR will be kept at 16(r1), which is its caller's
 *     r2   is for the function's own data, not for ours
 *
 * When a function is entered, those registers change that calls may change and that pass nothing: r0,
 * ctr, cr0, cr1, cr5 to cr7 and xer. When it returns, r0 and these. Floating-point and vector registers
 * hold arguments and results; no code of the runtime uses them.
 */

	.file	"entry.S"
#include "offsets.h"
#include "save.h"
#include "toc.h"
	.cfi_sections .eh_frame, .debug_frame
	.text

	.macro	address to, symbol
	addis	\to, 2, \symbol@toc@ha
	addi	\to, \to, \symbol@toc@l
	.endm

/* What a site calls, or the `thunk` of a PLT call stub: the ip is LR, or in the thunk's last word relative to
 * that. */
	.macro	caller thunk=0
	.cfi_startproc
	entered
#ifdef NOP
	std	0, -8(1)		/* below the stack pointer nobody else writes (2.2.2.4) */
	.cfi_offset LR, -8
	mflr	0
	mtctr	0
	.cfi_same_value CTR
	ld	0, -8(1)
	mtlr	0
	.cfi_same_value LR
#else
	save
	mr	3, 0			/* ip */
	.if	\thunk
	lwa	4, 16(3)
	add	3, 3, 4
	.endif
	addi	4, 1, SAVED_PARENT	/* location of the return address */
	addi	5, 1, SAVED		/* the slot */
	addi	6, 1, SAVED_ARGUMENTS	/* arguments, if wanted */
	own_toc
	bl	trace_entry
	restore
#endif
	bctr
	.cfi_endproc
	.endm

/* From the thunk of a PLT call stub, which does what a site does, and then what the stub did:
 *
 *     mflr r0; bl ftrace_plt_caller
 *     four instructions
 *     .long ip - the address after the bl
 *
 * The ip is the stub's: thunks have no names. */
#include "callers.h"

/* An unwinder that meets return_to_handler evaluates expressions for the function's real caller; the CFA,
 * which is the slot, is on their stack: unwind.h. A signal handler's return address (addi r1, r1, 128, which
 * begins the kernel's trampoline) may be recognised by its instructions alone (linux-unwind.h of libgcc),
 * and so has to be exact.
 *
 * LR & -256 is return_to_handler: LR is what the function had, or the address after a call below. The
 * distance to `process.threads` follows it.
 *
 * The return column is another than LR, which has the address itself: there unwinders look for
 * ld r2, 24(r1), by which a caller gets its r2 back after the call of a function that has another
 * (frob_update_context() of libgcc). Where there is none, both have the same.
 */
#define ORIGIN 0x92, LR, 0, 0x0b, 0x00, 0xff, 0x1a /* DW_OP_bregx LR 0, const2s -256, and */
#define ORIGIN_SIZE 7
#define DISTANCE 0x80, 0x02
#define DISTANCE_SIZE 2
#define OF_CALLER 0x16, CTR		/* DW_CFA_val_expression; register */
#define OF_LR 0x16, LR
#define OF_TOC 0x16, 2
#define CALLER_SIZE 14			/* bytes of `search_result` for each */
#define LR_SIZE 0
#define TOC_SIZE 21
#define RESULT_SIZE result_size
#define SLOT 0x12			/* dup: slot slot */
#define SLOT_SIZE 1
#define LOAD_TOC 0x18, 0x00, 0x41, 0xe8		/* ld r2, 24(r1) */
#define TRAMPOLINE 0x80, 0x00, 0x21, 0x38	/* addi r1, r1, 128 */

	.macro	search_result
	.if	result_size == CALLER_SIZE
	.cfi_escape 0x12, 0x94, 4		/* dup deref_size 4: ret insn */
	.cfi_escape 0x0c, TRAMPOLINE		/* const4u */
	.cfi_escape 0x29, 0x28, 2, 0		/* eq bra -> end: ret */
	.cfi_escape 0x31, 0x1c			/* lit1 minus: ret - 1 */
	.elseif	result_size == TOC_SIZE
	.cfi_escape 0x94, 4			/* deref_size 4: insn */
	.cfi_escape 0x0c, LOAD_TOC		/* const4u */
	.cfi_escape 0x29, 0x28, 6, 0		/* eq bra -> slot */
	.cfi_escape 0x71, SAVED_TOC, 0x06	/* breg1 24, deref: the function's own */
	.cfi_escape 0x2f, 4, 0			/* skip -> end */
	.cfi_escape 0x71, 0x98, 0x01, 0x06	/* slot: breg1 KEPT + 24, deref */
	.endif
	.endm
#include "unwind.h"

/*     | back chain, CR, LR, r2 | r3 ... r10 | r11, r12 | the place | ...
 *       ^ r1                     ^ 32         ^ 96       ^ 112       ^ 128, the slot: r1, where it was
 *
 * trace_return() writes to the place before it takes the frame off the ret_stack. So unwinding
 * from within this function looks there first.
 */
#define KEPT SAVED
#define PLACE 112
	.macro	searched size, of:vararg
	.set	result_size, \size
	.cfi_escape \of, BYTES(UNFOLLOWED + SLOT_SIZE + SEARCH)
	unfollowed
	.cfi_escape SLOT
	search
	.endm

	.macro	held_or_searched size, of:vararg
	.set	result_size, \size
	.cfi_escape \of, BYTES(UNFOLLOWED + 11 + ORIGIN_SIZE + SLOT_SIZE + SEARCH)
	unfollowed
	.cfi_escape 0x12			/* dup                        CFA CFA */
	.cfi_escape 0x08, KEPT - PLACE, 0x1c, 0x06	/* const1u minus deref  CFA held */
	.cfi_escape 0x12			/* dup */
	.cfi_escape ORIGIN, 0x2e		/* (origin) ne */
	.cfi_escape 0x28, SLOT_SIZE + TO_RESULT + 1, 0	/* bra -> result       held */
	.cfi_escape 0x13, SLOT			/* drop                       CFA; slot slot */
	search
	.endm

	.type	return_to_handler, @function
	.globl	return_to_handler
	.p2align 8
	.skip	252
	.cfi_startproc
	.cfi_signal_frame
	.cfi_return_column CTR
	searched CALLER_SIZE, OF_CALLER
	searched LR_SIZE, OF_LR
	nop					/* unwinders look up the address before */
return_to_handler:
	mflr	0
	std	0, PLACE - KEPT(1)
	std	2, SAVED_TOC - KEPT(1)
	stdu	1, -KEPT(1)
	.cfi_adjust_cfa_offset KEPT
	held_or_searched CALLER_SIZE, OF_CALLER
	held_or_searched LR_SIZE, OF_LR
	held_or_searched TOC_SIZE, OF_TOC
#if defined(PROBES) || defined(REGS)
	bl	ftrace_returned		/* LR & -256: less than 256 bytes from the start */
#else
	volatile std
	mr	5, 3			/* the value, if wanted */
	addi	3, 1, PLACE
	addi	4, 1, KEPT		/* the slot */
	own_toc
	bl	trace_return		/* the same */
	volatile ld
#endif
	ld	2, SAVED_TOC(1)
	ld	0, PLACE(1)
	mtlr	0
	.cfi_escape OF_CALLER, 5, 0x92, LR, 0, 0x31, 0x1c /* bregx LR 0, lit1 minus: LR - 1 */
	.cfi_same_value LR
	.cfi_same_value 2
	addi	1, 1, KEPT
	.cfi_adjust_cfa_offset -KEPT
	blr
	.cfi_endproc
	.size	return_to_handler, . - return_to_handler
	.org	return_to_handler + 256
	.quad	process + PROCESS_THREADS - (return_to_handler + 256)	/* &process.threads */

/* A function of the program or library: its address is in the configuration, and is called as any
 * other's, in r12. Without one the next instruction follows. */
	.macro	goes_on to
	address	11, ftpatch_config
	ld	12, \to(11)
	cmpdi	12, 0
	beq	8f
	ld	0, STUB_CONFIG_SELF(11)
	sub	0, 11, 0		/* bias */
	add	12, 12, 0
	mtctr	12
	bctr
8:
	.endm

/* The process begins here. As the kernel starts it, r1 points to argc. The dynamic linker of glibc passes
 * what __libc_start_main() gets, and r1 points to 0:
 *
 *     r3 argc, r4 argv, r5 the environment, r6 the auxiliary vector, r7 for exit to call
 *
 * A static program of glibc (its _start begins by mr r9, r1) is started that way, too: so it calls ours. */
	.globl	ftrace_start
	.type	ftrace_start, @function
	.p2align 4
ftrace_start:
	.cfi_startproc
	.cfi_undefined LR
	mr	31, 1			/* nothing is in registers that calls keep */
	mr	30, 7
	mr	29, 6
	mr	28, 5
	mr	27, 4
	mr	26, 3
	own_toc
	ld	0, 0(1)
	cmpdi	0, 0
	li	0, 0
	stdu	0, -64(1)
	mr	3, 31
	bne	1f
	addi	3, 27, -8
	std	26, 0(3)		/* argc; a linker that was run as a program has moved argv */
	b	2f
1:	li	30, 0
2:	bl	trace_start
	address	3, ended
	std	30, 0(3)
	mr	1, 31
	ld	0, 0(31)
	cmpdi	0, 0
	beq	5f
	address	3, ftpatch_config
	ld	4, STUB_CONFIG_SELF(3)
	sub	4, 3, 4			/* bias */
	ld	5, STUB_CONFIG_ENTRY(3)
	add	5, 5, 4
	lis	6, 0x7c290b78@ha	/* mr r9, r1 */
	addi	6, 6, 0x7c290b78@l
	lwz	7, 0(5)
	cmpw	7, 6
	beq	3f
	lwz	7, 8(5)			/* behind what makes r2 of r12 */
	cmpw	7, 6
	bne	6f
3:	mr	26, 0
	addi	27, 31, 8
	sldi	4, 0, 3
	add	28, 27, 4
	addi	28, 28, 8
	mr	29, 28
4:	ld	4, 0(29)
	addi	29, 29, 8
	cmpdi	4, 0
	bne	4b
	li	0, 0
	stdu	0, -16(1)
5:	address	7, ftrace_ended
	mr	3, 26
	mr	4, 27
	mr	5, 28
	mr	6, 29
6:	goes_on STUB_CONFIG_ENTRY
	.cfi_endproc
	.size	ftrace_start, . - ftrace_start

/* How a program and a library end; r2 is for the runtime from here on. */
	.macro	call_ended
	mflr	0
	std	0, 16(1)
	stdu	1, -32(1)
	.cfi_adjust_cfa_offset 32
	.cfi_offset LR, 16
	own_toc
	bl	trace_ended
	addi	1, 1, 32
	.cfi_adjust_cfa_offset -32
	ld	0, 16(1)
	mtlr	0
	.cfi_restore LR
	.endm

	.type	ftrace_ended, @function
ftrace_ended:
	.cfi_startproc
	call_ended
	address	11, ended
	ld	12, 0(11)
	cmpdi	12, 0
	beqlr
	mtctr	12
	bctr
	.cfi_endproc
	.size	ftrace_ended, . - ftrace_ended

/* In a shared library: what its DT_INIT and DT_FINI name. glibc passes argc, argv and the environment to
 * the former, and to the library's own, if there is one. */
	.globl	ftrace_library_start
	.type	ftrace_library_start, @function
ftrace_library_start:
	.cfi_startproc
	mflr	0
	std	0, 16(1)
	stdu	1, -64(1)
	.cfi_adjust_cfa_offset 64
	.cfi_offset LR, 16
	std	3, 32(1)
	std	4, 40(1)
	std	5, 48(1)
	own_toc
	bl	library_start
	ld	3, 32(1)
	ld	4, 40(1)
	ld	5, 48(1)
	addi	1, 1, 64
	.cfi_adjust_cfa_offset -64
	ld	0, 16(1)
	mtlr	0
	.cfi_restore LR
	goes_on	STUB_CONFIG_ENTRY
	blr
	.cfi_endproc
	.size	ftrace_library_start, . - ftrace_library_start

	.globl	ftrace_library_ended
	.type	ftrace_library_ended, @function
ftrace_library_ended:
	.cfi_startproc
	call_ended
	goes_on	STUB_CONFIG_ENDED
	blr
	.cfi_endproc
	.size	ftrace_library_ended, . - ftrace_library_ended

	.local	ended
	.comm	ended, 8, 8
	.section .note.GNU-stack, "", @progbits
