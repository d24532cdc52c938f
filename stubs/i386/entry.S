/* SPDX-License-Identifier: MIT */
/* A tracer's entry points in i386 code. They change nothing but the flags on function entry, and ecx
 * on return: the caller relies on neither (psABI, "Registers").
 *
 *     ftrace_caller       from a site:   | address after the site's call | parent ...
 *                                          ^ esp                            ^ the frame's slot
 *     return_to_handler   from ret:      | slot (was popped) | parent's frame ...
 *                                                              ^ esp
 *                         from ret $n:   | slot | n bytes of arguments | parent's frame ...
 *                                                                        ^ esp
 */

	.file	"entry.S"
#include "offsets.h"
#include "save.h"
	.cfi_sections .eh_frame, .debug_frame
	.text
/* From a site, or from the `thunk` of a PLT entry: that has the ip behind its jump, relative to the address
 * after its call. */
	.macro	caller thunk=0
	.cfi_startproc
#ifdef NOP
	ret
#else
	save	eax, edx, ecx
	movl	12(%esp), %eax		/* ip */
	leal	16(%esp), %edx		/* location of the return address */
	.if	\thunk
	addl	6(%eax), %eax
	.else
	cmpb	$0x59, (%eax)		/* popl %ecx: gcc keeps a nested function's ... */
	jne	1f
	addl	$4, %edx		/* ... static chain there, around a call of __fentry__ */
1:
	.endif
	movl	%edx, %ecx		/* which is the slot */
#ifdef ARGS
	leal	4(%edx), %edx		/* arguments */
	pushl	%edx
	.cfi_adjust_cfa_offset 4
	movl	%ecx, %edx
#endif
	call	trace_entry
#ifdef ARGS
	popl	%ecx
	.cfi_adjust_cfa_offset -4
#endif
	restore	ecx, edx, eax
	ret
#endif
	.cfi_endproc
	.endm

/* From the thunk of a PLT entry:
 *
 *     call ftrace_plt_caller
 *     jmp *slot or jmp *slot(%ebx)	# ff 25 or ff a3, 4 bytes; into the library
 *     .long ip - the address after the call
 *
 * The ip is the entry's: thunks have no names. */
#include "callers.h"

/* An unwinder that meets return_to_handler evaluates an expression for the function's real caller;
 * the CFA is on its stack, the slot is CFA - 4: unwind.h. To an unwinder the CFA is that of
 * `ret`: arguments are still there.
 *
 * eip (register 8) & -64 is return_to_handler, wherever the file is loaded; the distance to
 * `process.threads` follows it.
 */
#define ORIGIN 0x78, 0x00, 0x09, 0xc0, 0x1a	/* DW_OP_breg8 0, const1s -64, and */
#define VAL_EXPRESSION 0x16, 8			/* of eip; bytes */
#define ORIGIN_SIZE 5
#define DISTANCE 0x40
#define DISTANCE_SIZE 1
#define RESULT_SIZE 2
#define SLOT 0x34, 0x1c, 0x12			/* lit4 minus dup: slot slot */
#define SLOT_SIZE 3

	.macro	search_result
	.cfi_escape 0x31, 0x1c			/* lit1 minus: ret - 1 */
	.endm
#include "unwind.h"

#ifdef ARGS
#define MORE 8	/* bytes of a value */
#else
#define MORE 0
#endif

/*     | edx | eax | place | POPPED bytes, as they were left | ...
 *       ^ esp                                                 ^ where it was
 *
 * trace_return() writes to the place before it takes the frame off the ret_stack. So unwinding
 * from within this function looks there first.
 */
	.type	return_to_handler, @function
	.globl	return_to_handler
	.p2align 6
	.skip	63, 0xcc
	.cfi_startproc
	.cfi_signal_frame
	.cfi_def_cfa esp, 0
	.cfi_escape VAL_EXPRESSION, BYTES(UNFOLLOWED + SLOT_SIZE + SEARCH)
	unfollowed
	.cfi_escape SLOT
	search
	nop					/* unwinders look up the address before */
return_to_handler:
	leal	-POPPED(%esp), %esp
	.cfi_adjust_cfa_offset POPPED
	pushl	$0
	.cfi_adjust_cfa_offset 4
	.cfi_escape VAL_EXPRESSION, BYTES(UNFOLLOWED + 11 + SLOT_SIZE + SEARCH)
	unfollowed
	.cfi_escape 0x12			/*  0: dup                    CFA CFA */
	.cfi_escape 0x0a			/*  1: const2u POPPED + 4 */
	.cfi_escape (POPPED + 4) & 255, (POPPED + 4) >> 8
	.cfi_escape 0x1c, 0x06, 0x12		/*  4: minus deref dup        CFA held held */
	.cfi_escape 0x28, SLOT_SIZE + TO_RESULT + 1, 0	/*  7: bra -> result         held */
	.cfi_escape 0x13, SLOT			/* 10: drop                   CFA; slot slot */
	search
#ifdef PROBES
	call	ftrace_returned
#endif
#ifdef REGS
	call	ftrace_returned
	.cfi_escape VAL_EXPRESSION, 5, 0x34, 0x1c, 0x06, 0x31, 0x1c	/* lit4 minus deref, lit1 minus */
#else
	save	eax, edx
#ifndef PROBES
#ifdef ARGS
	pushl	$0				/* the value, as 64 bits */
	.cfi_adjust_cfa_offset 4
	pushl	%eax
	.cfi_adjust_cfa_offset 4
#endif
	leal	MORE + 8(%esp), %eax		/* the place */
	leal	MORE + POPPED + 8(%esp), %edx	/* the slot, but for arguments that were popped */
	call	trace_return
#ifdef ARGS
	addl	$MORE, %esp
	.cfi_adjust_cfa_offset -MORE
#endif
#endif
	movl	8(%esp), %edx			/* to the word that `ret` will take, for no register is */
	movl	%edx, POPPED + 8(%esp)		/* free: a caller may count on any (-fipa-ra) */
	.cfi_escape VAL_EXPRESSION, 5, 0x34, 0x1c, 0x06, 0x31, 0x1c	/* lit4 minus deref, lit1 minus */
	restore	edx, eax
#endif
	leal	POPPED(%esp), %esp
	.cfi_adjust_cfa_offset -POPPED
	ret
	.cfi_endproc
	.size	return_to_handler, . - return_to_handler
	.p2align 6
	.long	process + PROCESS_THREADS - (return_to_handler + 64)	/* &process.threads */

/* The process begins here: esp points to argc, edx is what the dynamic linker registers for exit,
 * 0 where there is none (psABI, "Process Initialization"). */
	.globl	ftrace_start
	.type	ftrace_start, @function
ftrace_start:
	.cfi_startproc
	.cfi_undefined eip
	movl	%esp, %esi			/* kept by trace_start */
	call	1f
1:	popl	%ebx
	movl	%edx, ended - 1b(%ebx)
	andl	$-16, %esp
	subl	$12, %esp
	pushl	%esi
	call	trace_start
	movl	%esi, %esp
	leal	ftrace_ended - 1b(%ebx), %edx
	leal	ftpatch_config - 1b(%ebx), %eax
	movl	%eax, %ecx
	subl	STUB_CONFIG_SELF(%eax), %ecx	/* bias */
	addl	STUB_CONFIG_ENTRY(%eax), %ecx
	xorl	%eax, %eax
	jmp	*%ecx
	.cfi_endproc
	.size	ftrace_start, . - ftrace_start

	.type	ftrace_ended, @function
ftrace_ended:
	.cfi_startproc
	subl	$12, %esp
	.cfi_adjust_cfa_offset 12
	call	trace_ended
	addl	$12, %esp
	.cfi_adjust_cfa_offset -12
	call	1f
	.cfi_adjust_cfa_offset 4
1:	popl	%ecx
	.cfi_adjust_cfa_offset -4
	movl	ended - 1b(%ecx), %eax
	testl	%eax, %eax
	je	2f
	jmp	*%eax
2:	ret
	.cfi_endproc
	.size	ftrace_ended, . - ftrace_ended

/* In a shared library: what its DT_INIT and DT_FINI name. glibc passes argc, argv and the environment to
 * the former, and to the library's own, if there is one: they stay where they are. */
	.globl	ftrace_library_start
	.type	ftrace_library_start, @function
ftrace_library_start:
	.cfi_startproc
	.rept	3
	pushl	12(%esp)
	.cfi_adjust_cfa_offset 4
	.endr
	call	library_start
	addl	$12, %esp
	.cfi_adjust_cfa_offset -12
	movl	$STUB_CONFIG_ENTRY, %edx
	jmp	1f
	.cfi_endproc
	.size	ftrace_library_start, . - ftrace_library_start

	.globl	ftrace_library_ended
	.type	ftrace_library_ended, @function
ftrace_library_ended:
	.cfi_startproc
	subl	$12, %esp
	.cfi_adjust_cfa_offset 12
	call	trace_ended
	addl	$12, %esp
	.cfi_adjust_cfa_offset -12
	movl	$STUB_CONFIG_ENDED, %edx
1:	call	2f
	.cfi_adjust_cfa_offset 4
2:	popl	%ecx
	.cfi_adjust_cfa_offset -4
	addl	$ftpatch_config - 2b, %ecx
	movl	(%ecx,%edx), %eax		/* the library's own */
	testl	%eax, %eax
	je	3f
	subl	STUB_CONFIG_SELF(%ecx), %ecx	/* bias */
	addl	%ecx, %eax
	jmp	*%eax
3:	ret
	.cfi_endproc
	.size	ftrace_library_ended, . - ftrace_library_ended

/* long syscall6(long number, long a, long b, long c, long d, long e, long f) */
	.globl	syscall6
	.hidden	syscall6
	.type	syscall6, @function
syscall6:
	.cfi_startproc
	pushl	%ebx
	.cfi_adjust_cfa_offset 4
	.cfi_rel_offset ebx, 0
	pushl	%esi
	.cfi_adjust_cfa_offset 4
	.cfi_rel_offset esi, 0
	pushl	%edi
	.cfi_adjust_cfa_offset 4
	.cfi_rel_offset edi, 0
	pushl	%ebp
	.cfi_adjust_cfa_offset 4
	.cfi_rel_offset ebp, 0
	movl	20(%esp), %eax
	movl	24(%esp), %ebx
	movl	28(%esp), %ecx
	movl	32(%esp), %edx
	movl	36(%esp), %esi
	movl	40(%esp), %edi
	movl	44(%esp), %ebp
	int	$0x80
	popl	%ebp
	.cfi_adjust_cfa_offset -4
	.cfi_restore ebp
	popl	%edi
	.cfi_adjust_cfa_offset -4
	.cfi_restore edi
	popl	%esi
	.cfi_adjust_cfa_offset -4
	.cfi_restore esi
	popl	%ebx
	.cfi_adjust_cfa_offset -4
	.cfi_restore ebx
	ret
	.cfi_endproc
	.size	syscall6, . - syscall6

/* The handler of clock.c returns here. Debuggers recognise a signal frame by these instructions;
 * unwinders look up the address before, then the instructions: so it must belong to no function. */
	nop
	.globl	clock_restorer
	.type	clock_restorer, @function
clock_restorer:
	popl	%eax
	movl	$119, %eax		/* sigreturn */
	int	$0x80
	.size	clock_restorer, . - clock_restorer

#ifdef PROBES
/* The same for trap.c, whose handler gets a siginfo_t. */
	nop
	.globl	trap_restorer
	.hidden	trap_restorer
	.type	trap_restorer, @function
trap_restorer:
	movl	$173, %eax		/* rt_sigreturn */
	int	$0x80
	.size	trap_restorer, . - trap_restorer
#endif

	.local	ended
	.comm	ended, 4, 4
	.section .note.GNU-stack, "", @progbits
