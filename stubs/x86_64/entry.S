/* SPDX-License-Identifier: MIT */
/* A tracer's entry points in x86-64 code. Nothing but the flags is changed: no flag survives a call
 * (psABI, "Registers"), but code may rely on everything else.
 *
 *     ftrace_caller       from a site:   | address after the site's call | parent ...
 *                                          ^ rsp                            ^ the frame's slot
 *     return_to_handler   from ret:      | slot (was popped) | parent's frame ...
 *                                                             ^ rsp
 */

	.file	"entry.S"
#include "offsets.h"
#include "save.h"
	.cfi_sections .eh_frame, .debug_frame
	.text
/* Call trace_entry with `saved` bytes of registers on the stack. The ip is the address after the call
 * to here; a `thunk` has it behind its jump, relative to that. `args`: the arguments are on top. */
	.macro	entered saved, thunk=0, args=0
	movq	\saved(%rsp), %rdi		/* ip */
	.if	\thunk
	movslq	6(%rdi), %rsi
	addq	%rsi, %rdi
	.endif
	leaq	\saved+8(%rsp), %rsi		/* location of the return address */
	movq	%rsi, %rdx			/* which is the slot */
	.if	\args
	movq	%rsp, %rcx
	.endif
	call	trace_entry
	.endm

#ifdef TOGETHER
#define ftrace_caller ftrace_site_caller	/* probes.S has the other */
#endif
#if (!defined(PROBES) && !defined(REGS)) || defined(TOGETHER)	/* probes.S and regs.S have their own */
	.globl	ftrace_caller
	.type	ftrace_caller, @function
	.p2align 6
ftrace_caller:
	.cfi_startproc
#if defined(NOP) || (defined(WATCH) && !defined(TOGETHER))
	ret
#else
	save	rdi, rsi, rdx
	entered	24
	restore	rdx, rsi, rdi
	ret
#endif
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller
#endif

#ifdef ARGS
/* The same with the registers that arguments are passed in, as an array. */
	.globl	ftrace_regs_caller
	.type	ftrace_regs_caller, @function
	.p2align 6
ftrace_regs_caller:
	.cfi_startproc
	save	r9, r8, rcx, rdx, rsi, rdi
	entered	48, args=1
	restore	rdi, rsi, rdx, rcx, r8, r9
	ret
	.cfi_endproc
	.size	ftrace_regs_caller, . - ftrace_regs_caller
#endif

#if !defined(PROBES) && !defined(WATCH) && !defined(REGS)
/* From the thunk of a PLT entry:
 *
 *     call ftrace_plt_caller
 *     jmp *slot(%rip)			# ff 25 rel32, into the library
 *     .long ip - the address after the call
 *
 * The ip is the entry's: thunks have no names. */
	.globl	ftrace_plt_caller
	.type	ftrace_plt_caller, @function
	.p2align 6
ftrace_plt_caller:
	.cfi_startproc
#ifdef NOP
	ret
#else
#ifdef ARGS
	save	r9, r8, rcx, rdx, rsi, rdi
	entered	48, thunk=1, args=1
	restore	rdi, rsi, rdx, rcx, r8, r9
#else
	save	rdi, rsi, rdx
	entered	24, thunk=1
	restore	rdx, rsi, rdi
#endif
	ret
#endif
	.cfi_endproc
	.size	ftrace_plt_caller, . - ftrace_plt_caller
#endif

/* An unwinder that meets return_to_handler evaluates an expression for the function's real caller;
 * the CFA is on its stack, the slot is CFA - 8. The result is what the slot holds, unless that is
 * still return_to_handler; else as in unwind.h.
 *
 * rip (register 16) & -64 is return_to_handler, wherever the file is loaded; the distance to
 * `process.threads` follows it.
 */
#define ORIGIN 0x80, 0x00, 0x09, 0xc0, 0x1a	/* DW_OP_breg16 0, const1s -64, and */
#define ORIGIN_SIZE 5
#define DISTANCE 0x40
#define DISTANCE_SIZE 1
#define RESULT_SIZE 2

	.macro	search_result
	.cfi_escape 0x31, 0x1c			/* lit1 minus: ret - 1 */
	.endm
#include "unwind.h"

	.type	return_to_handler, @function
	.globl	return_to_handler
	.p2align 6
	.skip	63, 0xcc
	.cfi_startproc
	.cfi_signal_frame
	.cfi_def_cfa rsp, 0
	.cfi_escape 0x16, 16, BYTES(UNFOLLOWED + 16 + SEARCH) /* DW_CFA_val_expression rip, bytes */
	unfollowed
	.cfi_escape 0x38, 0x1c, 0x12		/*  0: lit8 minus dup         slot slot */
	.cfi_escape 0x12, 0x06			/*  3: dup deref              slot slot held */
	.cfi_escape 0x12			/*  5: dup */
	.cfi_escape ORIGIN, 0x2e		/*  6: (origin) ne            slot slot held differs */
	.cfi_escape 0x28, TO_RESULT + 1, 0	/* 12: bra -> result */
	.cfi_escape 0x13			/* 15: drop                   slot slot */
	search
	nop					/* unwinders look up the address before */
return_to_handler:
#ifdef REGS
	leaq	-8(%rsp), %rsp		/* the flags are shown, too */
#else
	subq	$8, %rsp
#endif
	.cfi_adjust_cfa_offset 8
#if defined(PROBES) || defined(REGS)
	call	ftrace_returned
#else
	save	rdi, rsi, rdx
	leaq	24(%rsp), %rdi
	movq	%rdi, %rsi
	movq	%rax, %rdx		/* the value, if wanted */
	call	trace_return
	restore	rdx, rsi, rdi
#endif
	leaq	8(%rsp), %rsp
	.cfi_adjust_cfa_offset -8
	notrack jmp *-8(%rsp)		/* in the red zone: not even r11 is free (-fipa-ra) */
	.cfi_endproc
	.size	return_to_handler, . - return_to_handler
	.p2align 6
	.quad	process + PROCESS_THREADS - (return_to_handler + 64)	/* &process.threads */

/* The process begins here: rsp points to argc, rdx is what the dynamic linker registers for exit,
 * 0 where there is none (psABI, "Process Initialization"). */
	.globl	ftrace_start
	.type	ftrace_start, @function
ftrace_start:
	.cfi_startproc
	.cfi_undefined rip
	movq	%rsp, %rdi
	movq	%rdx, ended(%rip)
	subq	$8, %rsp
	andq	$-16, %rsp
	pushq	%rdi
	pushq	%rdi
	call	trace_start
	popq	%rsp
	leaq	ftrace_ended(%rip), %rdx
	leaq	ftpatch_config(%rip), %rax
	movq	%rax, %rcx
	subq	STUB_CONFIG_SELF(%rax), %rcx	/* bias */
	addq	STUB_CONFIG_ENTRY(%rax), %rcx
	xorl	%eax, %eax
	jmp	*%rcx
	.cfi_endproc
	.size	ftrace_start, . - ftrace_start

	.type	ftrace_ended, @function
ftrace_ended:
	.cfi_startproc
	subq	$8, %rsp
	.cfi_adjust_cfa_offset 8
	call	trace_ended
	addq	$8, %rsp
	.cfi_adjust_cfa_offset -8
	movq	ended(%rip), %rax
	testq	%rax, %rax
	je	1f
	jmp	*%rax
1:	ret
	.cfi_endproc
	.size	ftrace_ended, . - ftrace_ended

/* In a shared library: what its DT_INIT and DT_FINI name. glibc passes argc, argv and the environment to
 * the former, and to the library's own, if there is one. */
	.globl	ftrace_library_start
	.type	ftrace_library_start, @function
ftrace_library_start:
	.cfi_startproc
	save	rdi, rsi, rdx
	call	library_start
	restore	rdx, rsi, rdi
	movl	$STUB_CONFIG_ENTRY, %eax
	jmp	1f
	.cfi_endproc
	.size	ftrace_library_start, . - ftrace_library_start

	.globl	ftrace_library_ended
	.type	ftrace_library_ended, @function
ftrace_library_ended:
	.cfi_startproc
	subq	$8, %rsp
	.cfi_adjust_cfa_offset 8
	call	trace_ended
	addq	$8, %rsp
	.cfi_adjust_cfa_offset -8
	movl	$STUB_CONFIG_ENDED, %eax
1:	leaq	ftpatch_config(%rip), %rcx
	movq	(%rcx,%rax), %rax		/* the library's own */
	testq	%rax, %rax
	je	2f
	subq	STUB_CONFIG_SELF(%rcx), %rcx	/* bias */
	addq	%rcx, %rax
	jmp	*%rax
2:	ret
	.cfi_endproc
	.size	ftrace_library_ended, . - ftrace_library_ended

/* The handlers of clock.c and trap.c return here. Debuggers recognise a signal frame by these
 * instructions; unwinders look up the address before, then the instructions: so it must belong to
 * no function. */
	nop
	.globl	clock_restorer, trap_restorer
	.type	clock_restorer, @function
clock_restorer:
trap_restorer:
	movq	$15, %rax		/* rt_sigreturn */
	syscall
	.size	clock_restorer, . - clock_restorer

	.local	ended
	.comm	ended, 8, 8
	.section .note.GNU-stack, "", @progbits
