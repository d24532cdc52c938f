/* SPDX-License-Identifier: MIT */
/* A tracer's entry points in 32-bit ARM code, for sites of both instruction sets. The site is
 *
 *     push {lr}
 *     bl   ftrace_caller             (blx in T32)
 *
 * in front of everything else that its function does, so that there
 *
 *     lr       is the address after the site, of which bit 0 says that it is T32
 *     [sp]     is where the function will return to (its parent)
 *     sp + 4   is its frame's slot
 *
 * Nothing is changed but the flags when a function is entered, and when it returns. Registers of VFP hold
 * arguments and results; no code of the runtime uses them.
 */

	.file	"entry.S"
#include "offsets.h"
#include "save.h"
	.syntax	unified
	.arm
	.cfi_sections .debug_frame
	.text
/* What a site calls, or the `thunk` of a PLT entry: the ip is lr, or in the thunk's last word relative to
 * that. */
	.macro	caller thunk=0
	.fnstart
	.cfi_startproc
	entered
#ifdef NOP
	push	{r0, lr}
	.cfi_adjust_cfa_offset 8
	ldr	r0, [sp, #8]		/* the parent */
	str	lr, [sp, #8]
	.cfi_offset pc, -4
	str	r0, [sp, #4]
	.cfi_offset lr, -8
	pop	{r0, lr, pc}
#else
	save
	.if	\thunk
	ldr	r0, [lr, #16]
	add	r0, r0, lr
	.else
	bic	r0, lr, #1		/* ip */
	.endif
	add	r1, sp, #SAVED_PARENT	/* location of the return address */
	add	r2, sp, #SAVED		/* the slot */
	mov	r3, sp			/* arguments, if wanted */
	bl	trace_entry
	restore
#endif
	.cfi_endproc
	.fnend
	.endm

/* From the thunk of a PLT entry, which does what a site does, and then what the entry did:
 *
 *     push {lr}; bl ftrace_plt_caller
 *     ldr ip, [pc, #4]; add ip, pc, ip; ldr pc, [ip]
 *     .word slot - .
 *     .word ip - the address after the bl
 *
 * The ip is the entry's: thunks have no names. */
#include "callers.h"

/* A debugger that meets return_to_handler evaluates an expression for the function's real caller; the CFA,
 * which is the slot, is on its stack: unwind.h. Unwinders within the program call routines: unwound.h.
 *
 * pc & -128 is return_to_handler. The distance to `process.threads` follows it.
 */
#define ORIGIN 0x7f, 0x00, 0x09, 0x80, 0x1a	/* DW_OP_breg15 0, const1s -128, and */
#define ORIGIN_SIZE 5
#define VAL_EXPRESSION 0x16, 14			/* of lr; bytes */
#define DISTANCE 0x80, 0x01
#define DISTANCE_SIZE 2
#define RESULT_SIZE 2
#define SLOT 0x12				/* dup: slot slot */
#define SLOT_SIZE 1

	.macro	search_result
	.cfi_escape 0x32, 0x1c			/* lit2 minus: in the call, of either set */
	.endm
#include "unwind.h"

/*     | r0 ... r3 | r4 | ip | lr | pc: the place | ...
 *       ^ sp        ^ 16           ^ 28            ^ 32, the slot: sp, where it was
 *
 * trace_return() writes to the place before it takes the frame off the ret_stack. So unwinding
 * from within this function looks there first.
 */
#define KEPT 32
#define PLACE 28
	.type	return_to_handler, %function
	.globl	return_to_handler
	.p2align 7
	.skip	124
	.fnstart
	.personality handler_unwound
	.handlerdata
	.globl	unwound_by
unwound_by = . - 8			/* the entry: of it, where it is, and a word without instructions */
	.text
	.cfi_startproc
	.cfi_signal_frame
	.cfi_def_cfa sp, 0
	.cfi_escape VAL_EXPRESSION, BYTES(UNFOLLOWED + SLOT_SIZE + SEARCH)
	unfollowed
	.cfi_escape SLOT
	search
	nop					/* unwinders look up the address before */
return_to_handler:
	sub	sp, sp, #KEPT - PLACE
	.cfi_adjust_cfa_offset KEPT - PLACE
	push	{r0-r4, ip, lr}
	.cfi_adjust_cfa_offset PLACE
#if defined(PROBES) || defined(REGS)
	mov	lr, #0				/* r3 is told too */
	str	lr, [sp, #PLACE]
#else
	mov	r3, #0
	str	r3, [sp, #PLACE]
#endif
	.cfi_escape VAL_EXPRESSION, BYTES(UNFOLLOWED + 9 + SLOT_SIZE + SEARCH)
	unfollowed
	.cfi_escape 0x12, 0x34, 0x1c, 0x06	/* dup lit4 minus deref      CFA held */
	.cfi_escape 0x12			/* dup */
	.cfi_escape 0x28, SLOT_SIZE + TO_RESULT + 1, 0	/* bra -> result     held */
	.cfi_escape 0x13, SLOT			/* drop                      CFA; slot slot */
	search
#if defined(PROBES) || defined(REGS)
	bl	ftrace_returned
#else
	mov	r2, r0				/* the value, if wanted, as 64 bits */
	add	r0, sp, #PLACE
	add	r1, sp, #KEPT			/* the slot */
	bl	trace_return
#endif
	pop	{r0-r4, ip, lr, pc}
	.cfi_endproc
	.fnend
	.size	return_to_handler, . - return_to_handler
	.org	return_to_handler + 128
	.long	process + PROCESS_THREADS - (return_to_handler + 128)	/* &process.threads */

	.macro	address to, symbol
	movw	\to, #:lower16:(\symbol - (9f + 8))
	movt	\to, #:upper16:(\symbol - (9f + 8))
9:	add	\to, pc, \to
	.endm

/* The process begins here: sp points to argc, r0 is what the dynamic linker registers for exit, 0
 * where there is none. */
	.globl	ftrace_start
	.type	ftrace_start, %function
	.p2align 4
ftrace_start:
	.fnstart
	.cantunwind
	.cfi_startproc
	.cfi_undefined lr
	address	r1, ended
	str	r0, [r1]
	mov	r0, sp
	mov	r4, sp
	bic	sp, sp, #7
	bl	trace_start
	mov	sp, r4
	address	r0, ftrace_ended
	address	r1, ftpatch_config
	ldr	r2, [r1, #STUB_CONFIG_SELF]
	ldr	r3, [r1, #STUB_CONFIG_ENTRY]
	sub	r1, r1, r2			/* bias */
	add	r1, r1, r3
	bx	r1
	.cfi_endproc
	.fnend
	.size	ftrace_start, . - ftrace_start

/* How a program and a library end. */
	.macro	call_ended
	push	{r4, lr}
	.save	{r4, lr}
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset lr, 4
	bl	trace_ended
	pop	{r4, lr}
	.cfi_restore lr
	.cfi_adjust_cfa_offset -8
	.endm

	.type	ftrace_ended, %function
ftrace_ended:
	.fnstart
	.cfi_startproc
	call_ended
	address	r1, ended
	ldr	r1, [r1]
	cmp	r1, #0
	bxeq	lr
	bx	r1
	.cfi_endproc
	.fnend
	.size	ftrace_ended, . - ftrace_ended

/* In a shared library: what its DT_INIT and DT_FINI name. glibc passes argc, argv and the environment to
 * the former, and to the library's own, if there is one. */
	.globl	ftrace_library_start
	.type	ftrace_library_start, %function
ftrace_library_start:
	.fnstart
	.cfi_startproc
	push	{r0-r2, lr}
	.save	{lr}
	.pad	#12
	.cfi_adjust_cfa_offset 16
	.cfi_rel_offset lr, 12
	bl	library_start
	pop	{r0-r2, lr}
	.cfi_restore lr
	.cfi_adjust_cfa_offset -16
	mov	r3, #STUB_CONFIG_ENTRY
	b	1f
	.cfi_endproc
	.fnend
	.size	ftrace_library_start, . - ftrace_library_start

	.globl	ftrace_library_ended
	.type	ftrace_library_ended, %function
ftrace_library_ended:
	.fnstart
	.cfi_startproc
	call_ended
	mov	r3, #STUB_CONFIG_ENDED
1:	address	ip, ftpatch_config
	ldr	r3, [ip, r3]			/* the library's own */
	cmp	r3, #0
	bxeq	lr
	add	r3, r3, ip
	ldr	ip, [ip, #STUB_CONFIG_SELF]
	sub	r3, r3, ip
	bx	r3
	.cfi_endproc
	.fnend
	.size	ftrace_library_ended, . - ftrace_library_ended

/* Of compact entries, whose personality routines these would be; unwinders have their own. */
	.globl	__aeabi_unwind_cpp_pr0, __aeabi_unwind_cpp_pr1
	.hidden	__aeabi_unwind_cpp_pr0, __aeabi_unwind_cpp_pr1
__aeabi_unwind_cpp_pr0:
__aeabi_unwind_cpp_pr1:

	.local	ended
	.comm	ended, 4, 4
	.section .note.GNU-stack, "", %progbits
