/* SPDX-License-Identifier: MIT */
/* A tracer's entry points in loongarch64 code. The site is
 *
 *     move $t0, $ra
 *     bl   ftrace_caller
 *
 * in front of everything else that its function does, so that there
 *
 *     t0   is where the function will return to (its parent)
 *     ra   is the address after the site
 *     sp   is its frame's slot
 *
 * and the function expects its return address in ra when it goes on. Nothing else is changed but t0 when
 * a function is entered, and nothing when it returns. Floating-point and vector registers hold arguments
 * and results; no code of the runtime uses them.
 */

	.file	"entry.S"
#include "offsets.h"
#include "save.h"
	.cfi_sections .eh_frame, .debug_frame
	.text
/* What a site calls, or the `thunk` of a PLT entry: the ip is ra, or in the thunk's last word relative
 * to that. */
	.macro	caller thunk=0
	.cfi_startproc
	entered
#ifdef NOP
	addi.d	$sp, $sp, -16
	.cfi_adjust_cfa_offset 16
	st.d	$ra, $sp, 0
	.cfi_rel_offset IP, 0
	move	$ra, $t0
	.cfi_same_value RA
	ld.d	$t0, $sp, 0
	.cfi_register IP, T0
	addi.d	$sp, $sp, 16
	.cfi_adjust_cfa_offset -16
#else
	save
	.if	\thunk
	ld.w	$a0, $ra, 20
	add.d	$a0, $a0, $ra
	.else
	move	$a0, $ra
	.endif
	addi.d	$a1, $sp, SAVED_PARENT	/* location of the return address */
	addi.d	$a2, $sp, SAVED		/* the slot */
	move	$a3, $sp		/* arguments, if wanted */
	bl	trace_entry
	restore
#endif
	jr	$t0
	.cfi_endproc
	.endm

/* From the thunk of a PLT entry, which does what a site does, and then what the entry did:
 *
 *     move $t0, $ra; pcaddu12i $t1, ftrace_plt_caller; jirl $ra, $t1, ftrace_plt_caller
 *     pcaddu12i $t3, slot; ld.d $t3, $t3, slot; pcaddu12i $t1, behind; addi.d $t1, $t1, behind; jr $t3
 *     .word ip - the address after the first jirl
 *
 * The ip is the entry's: thunks have no names. */
#include "callers.h"

/* An unwinder that meets return_to_handler evaluates an expression for the function's real caller;
 * the CFA, which is the slot, is on its stack: unwind.h. But a signal handler's return address
 * (ori $a7, $zero, 139, which is rt_sigreturn; syscall 0) is recognised by these instructions alone
 * (loongarch_fallback_frame_state() of libgcc), and so has to be exact.
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
	.cfi_escape 0x0c, 0x0b, 0x2c, 0x82, 0x03 /* const4u: ori $a7, $zero, 139 */
	.cfi_escape 0x29, 0x28, 2, 0		/* eq bra -> end: ret */
	.cfi_escape 0x31, 0x1c			/* lit1 minus: ret - 1 */
	.endm
#include "unwind.h"

/*     | ra, the place | a0 ... a7 | t1 ... t8 | t0 | ...
 *       ^ sp            ^ 8         ^ 72        ^ 136 ^ 144, the slot: sp, where it was
 *
 * trace_return() writes to the place before it takes the frame off the ret_stack. So unwinding
 * from within this function looks there first.
 */
#define KEPT 144
	.type	return_to_handler, @function
	.globl	return_to_handler
	.p2align 8
	.skip	252
	.cfi_startproc
	.cfi_signal_frame
	.cfi_def_cfa 3, 0			/* sp */
	.cfi_escape VAL_EXPRESSION, BYTES(UNFOLLOWED + SLOT_SIZE + SEARCH)
	unfollowed
	.cfi_escape SLOT
	search
	nop					/* unwinders look up the address before */
return_to_handler:
	addi.d	$sp, $sp, -KEPT
	.cfi_adjust_cfa_offset KEPT
	st.d	$ra, $sp, 0
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
	bl	ftrace_returned
#else
	arguments st.d, 8
	temporaries st.d, 72
	st.d	$t0, $sp, 136
	move	$a2, $a0			/* the value, if wanted */
	move	$a0, $sp			/* the place */
	addi.d	$a1, $sp, KEPT			/* the slot */
	bl	trace_return			/* ra & -256: less than 256 bytes from the start */
	arguments ld.d, 8
	temporaries ld.d, 72
	ld.d	$t0, $sp, 136
#endif
	ld.d	$ra, $sp, 0
	.cfi_escape VAL_EXPRESSION, 4, 0x71, 0x00, 0x31, 0x1c	/* breg1 0, lit1 minus: ra - 1 */
	addi.d	$sp, $sp, KEPT
	.cfi_adjust_cfa_offset -KEPT
	jr	$ra
	.cfi_endproc
	.size	return_to_handler, . - return_to_handler
	.org	return_to_handler + 256
	.dword	process + PROCESS_THREADS - (return_to_handler + 256)	/* &process.threads */

/* The process begins here: sp points to argc, a0 is what the dynamic linker registers for exit, 0
 * where there is none (the kernel leaves that). */
	.globl	ftrace_start
	.type	ftrace_start, @function
	.p2align 4
ftrace_start:
	.cfi_startproc
	.cfi_undefined 1
	la.pcrel	$t0, ended
	st.d	$a0, $t0, 0
	move	$a0, $sp
	bl	trace_start
	la.pcrel	$a0, ftrace_ended
	la.pcrel	$t0, ftpatch_config
	ld.d	$t1, $t0, STUB_CONFIG_SELF
	ld.d	$t2, $t0, STUB_CONFIG_ENTRY
	sub.d	$t1, $t0, $t1		/* bias */
	add.d	$t1, $t1, $t2
	jr	$t1
	.cfi_endproc
	.size	ftrace_start, . - ftrace_start

/* How a program and a library end. */
	.macro	call_ended
	addi.d	$sp, $sp, -16
	.cfi_adjust_cfa_offset 16
	st.d	$ra, $sp, 8
	.cfi_rel_offset 1, 8
	bl	trace_ended
	ld.d	$ra, $sp, 8
	.cfi_restore 1
	addi.d	$sp, $sp, 16
	.cfi_adjust_cfa_offset -16
	.endm

	.type	ftrace_ended, @function
ftrace_ended:
	.cfi_startproc
	call_ended
	la.pcrel	$t0, ended
	ld.d	$t1, $t0, 0
	beqz	$t1, 1f
	jr	$t1
1:	jr	$ra
	.cfi_endproc
	.size	ftrace_ended, . - ftrace_ended

/* In a shared library: what its DT_INIT and DT_FINI name. glibc passes argc, argv and the environment to
 * the former, and to the library's own, if there is one. */
	.globl	ftrace_library_start
	.type	ftrace_library_start, @function
ftrace_library_start:
	.cfi_startproc
	addi.d	$sp, $sp, -32
	.cfi_adjust_cfa_offset 32
	st.d	$ra, $sp, 24
	.cfi_rel_offset 1, 24
	st.d	$a0, $sp, 0
	st.d	$a1, $sp, 8
	st.d	$a2, $sp, 16
	bl	library_start
	ld.d	$a0, $sp, 0
	ld.d	$a1, $sp, 8
	ld.d	$a2, $sp, 16
	ld.d	$ra, $sp, 24
	.cfi_restore 1
	addi.d	$sp, $sp, 32
	.cfi_adjust_cfa_offset -32
	la.pcrel	$t0, ftpatch_config
	ld.d	$t1, $t0, STUB_CONFIG_ENTRY
	b	1f
	.cfi_endproc
	.size	ftrace_library_start, . - ftrace_library_start

	.globl	ftrace_library_ended
	.type	ftrace_library_ended, @function
ftrace_library_ended:
	.cfi_startproc
	call_ended
	la.pcrel	$t0, ftpatch_config
	ld.d	$t1, $t0, STUB_CONFIG_ENDED
1:	beqz	$t1, 2f			/* the library's own */
	ld.d	$t2, $t0, STUB_CONFIG_SELF
	sub.d	$t0, $t0, $t2		/* bias */
	add.d	$t1, $t1, $t0
	jr	$t1
2:	jr	$ra
	.cfi_endproc
	.size	ftrace_library_ended, . - ftrace_library_ended

	.local	ended
	.comm	ended, 8, 8
	.section .note.GNU-stack, "", @progbits
