/* What x86-64 code meets of a tracer. Nothing but the flags is changed: a function's caller may count
 * on no flag across a call (psABI, "Registers"), but code may count on anything else.
 *
 *     ftrace_caller       from a site:   | address after the site's call | parent ...
 *                                          ^ rsp                            ^ the frame's slot
 *     return_to_handler   from ret:      | slot (was popped) | parent's frame ...
 *                                                             ^ rsp
 */

#define FRAME 40	/* sizeof(struct frame) */
#define LOW 8		/* offsetof(struct thread, low); top is at 0 */
#define NEXT 16		/* offsetof(struct thread, next) */

	.file	"entry.S"
#include "save.h"
	.cfi_sections .eh_frame, .debug_frame
	.text
	.globl	ftrace_caller
	.type	ftrace_caller, @function
	.p2align 6
ftrace_caller:
	.cfi_startproc
#ifdef NOP
	ret
#else
	save	rdi, rsi, rdx
	movq	24(%rsp), %rdi		/* ip */
	leaq	32(%rsp), %rsi		/* where the return address stands */
	movq	%rsi, %rdx		/* which is the slot */
	call	trace_entry
	restore	rdx, rsi, rdi
	ret
#endif
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller

#ifdef ARGS
/* The same with the registers that arguments are passed in, as an array. */
	.globl	ftrace_regs_caller
	.type	ftrace_regs_caller, @function
	.p2align 6
ftrace_regs_caller:
	.cfi_startproc
	save	r9, r8, rcx, rdx, rsi, rdi
	movq	48(%rsp), %rdi		/* ip */
	leaq	56(%rsp), %rsi
	movq	%rsi, %rdx
	movq	%rsp, %rcx
	call	trace_entry
	restore	rdi, rsi, rdx, rcx, r8, r9
	ret
	.cfi_endproc
	.size	ftrace_regs_caller, . - ftrace_regs_caller
#endif

/* An unwinder that meets return_to_handler asks this expression where the function was really
 * called from; the CFA lies on its stack. What the slot holds, if that is not return_to_handler
 * any more; else what the frame with this slot says, in the ret_stack of whatever thread:
 *
 *     for (t = threads; t; t = t->next)
 *         for (frame = t->top; frame != t->low;)
 *             if ((--frame)->slot == CFA - 8 && frame->ret != return_to_handler)
 *                 return frame->ret;
 *     return 0;
 *
 * less one: the frame is marked as a signal's, or else it and its caller's, which have the same CFA,
 * would be taken for one another (uw_identify_context() of libgcc); and what a signal interrupted is
 * looked for at its address, what made a call just before it.
 *
 * rip (register 16) & -64 is return_to_handler, wherever the file is loaded; the distance to
 * `process.threads` stands behind it.
 */
#define RIP16 0x80, 0x00			/* DW_OP_breg16 0 (as below) */
#define ORIGIN 0x80, 0x00, 0x09, 0xc0, 0x1a	/* DW_OP_breg16 0, const1s -64, and */

	.type	return_to_handler, @function
	.globl	return_to_handler
	.p2align 6
	.skip	63, 0xcc
	.cfi_startproc
	.cfi_signal_frame
	.cfi_def_cfa rsp, 0
	.cfi_escape 0x16, 16, 101		/* DW_CFA_val_expression rip, 101 bytes */
	.cfi_escape 0x38, 0x1c, 0x12		/*  0: lit8 minus dup         slot, for libgcc's DW_OP_pick
						       does not reach the last   slot */
	.cfi_escape 0x12, 0x06			/*  3: dup deref              slot held */
	.cfi_escape 0x12			/*  5: dup */
	.cfi_escape ORIGIN, 0x2e		/*  6: (origin) ne            slot held differs */
	.cfi_escape 0x28, 84, 0			/* 12: bra -> 99 */
	.cfi_escape 0x13			/* 15: drop                   slot */
	.cfi_escape ORIGIN, 0x23, 0x40		/* 16: (origin) plus_uconst 64 */
	.cfi_escape 0x12, 0x06, 0x22		/* 23: dup deref plus         slot &threads */
	.cfi_escape 0x06			/* 26: deref                  slot t */
	.cfi_escape 0x12, 0x30, 0x29		/* 27: dup lit0 eq */
	.cfi_escape 0x28, 68, 0			/* 30: bra -> 101: 0, the end */
	.cfi_escape 0x12, 0x06			/* 33: dup deref              slot t frame */
	.cfi_escape 0x14, 0x23, LOW, 0x06	/* 35: over plus_uconst deref slot t frame low */
	.cfi_escape 0x14, 0x29			/* 39: over eq */
	.cfi_escape 0x28, 41, 0			/* 41: bra -> 85 */
	.cfi_escape 0x08, FRAME, 0x1c		/* 44: const1u minus          slot t frame */
	.cfi_escape 0x12, 0x06			/* 47: dup deref              slot t frame its */
	.cfi_escape 0x15, 0x03, 0x2e		/* 49: pick 3 ne */
	.cfi_escape 0x28, 0xec, 0xff		/* 52: bra -> 35 */
	.cfi_escape 0x12, 0x23, 0x08, 0x06	/* 55: dup plus_uconst deref  slot t frame ret */
	.cfi_escape 0x12			/* 59: dup */
	.cfi_escape ORIGIN, 0x29		/* 60: (origin) eq */
	.cfi_escape 0x28, 3, 0			/* 66: bra -> 72 */
	.cfi_escape 0x2f, 27, 0			/* 69: skip -> 99             ret */
	.cfi_escape 0x13			/* 72: drop                   slot t frame */
	.cfi_escape 0x2f, 0xd7, 0xff		/* 73: skip -> 35 */
	.cfi_escape 0x96, 0x96, 0x96, 0x96	/* 76: nop */
	.cfi_escape 0x96, 0x96, 0x96, 0x96
	.cfi_escape 0x96
	.cfi_escape 0x13			/* 85: drop                   slot t */
	.cfi_escape 0x23, NEXT, 0x06		/* 86: plus_uconst deref      slot next */
	.cfi_escape 0x2f, 0xbf, 0xff		/* 89: skip -> 27 */
	.cfi_escape 0x96, 0x96, 0x96, 0x96	/* 92: nop */
	.cfi_escape 0x96, 0x96, 0x96
	.cfi_escape 0x31, 0x1c			/* 99: lit1 minus */
	nop					/* unwinders look for the address before */
return_to_handler:
	subq	$8, %rsp
	.cfi_adjust_cfa_offset 8
	save	rdi, rsi, rdx
	leaq	24(%rsp), %rdi
	movq	%rdi, %rsi
	movq	%rax, %rdx		/* the value, if anyone asks */
	call	trace_return
	restore	rdx, rsi, rdi
	leaq	8(%rsp), %rsp
	.cfi_adjust_cfa_offset -8
	notrack jmp *-8(%rsp)		/* in the red zone: not even r11 is free (-fipa-ra) */
	.cfi_endproc
	.size	return_to_handler, . - return_to_handler
	.p2align 6
	.quad	process + 32 - (return_to_handler + 64)	/* &process.threads */

/* The process begins here: rsp points to argc, rdx is what the dynamic linker wants called at exit,
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
	subq	16(%rax), %rcx			/* bias: self is at 16 */
	addq	24(%rax), %rcx			/* entry is at 24 */
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

/* Where the handler of clock.c returns to; debuggers know a signal frame by these instructions. */
	.globl	clock_restorer
	.type	clock_restorer, @function
clock_restorer:
	movq	$15, %rax		/* rt_sigreturn */
	syscall
	.size	clock_restorer, . - clock_restorer

	.local	ended
	.comm	ended, 8, 8
	.section .note.GNU-stack, "", @progbits
