/* SPDX-License-Identifier: MIT */
/* From the stub of a system call, which t0 leads back to: `struct asked`, and what else C functions may change
 * but t0 to t8. The answer to `done` is in t1. */
	.file	"system_calls.S"
	.cfi_sections .eh_frame, .debug_frame
	.text
#define T0 12
	.globl	ftrace_asked
	.type	ftrace_asked, @function
	.p2align 4
ftrace_asked:
	.cfi_startproc
	.cfi_return_column T0
	addi.d	$sp, $sp, -96
	.cfi_adjust_cfa_offset 96
	st.d	$a7, $sp, 0
	st.d	$a0, $sp, 8
	st.d	$a1, $sp, 16
	st.d	$a2, $sp, 24
	st.d	$a3, $sp, 32
	st.d	$a4, $sp, 40
	st.d	$a5, $sp, 48
	st.d	$zero, $sp, 56
	st.d	$t0, $sp, 64
	.cfi_rel_offset T0, 64
	st.d	$a6, $sp, 72
	st.d	$ra, $sp, 80
	.cfi_rel_offset 1, 80
	move	$a0, $sp
	bl	signal_asked
	ld.d	$a7, $sp, 0
	ld.d	$a0, $sp, 8
	ld.d	$a1, $sp, 16
	ld.d	$a2, $sp, 24
	ld.d	$a3, $sp, 32
	ld.d	$a4, $sp, 40
	ld.d	$a5, $sp, 48
	ld.d	$t1, $sp, 56
	ld.d	$t0, $sp, 64
	.cfi_same_value T0
	ld.d	$a6, $sp, 72
	ld.d	$ra, $sp, 80
	.cfi_same_value 1
	addi.d	$sp, $sp, 96
	.cfi_adjust_cfa_offset -96
	jr	$t0
	.cfi_endproc
	.size	ftrace_asked, . - ftrace_asked
	.section .note.GNU-stack, "", @progbits
