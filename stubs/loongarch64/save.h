/* SPDX-License-Identifier: MIT */
/* What ftrace_caller keeps, of a program and of a library: all that C functions may change but $t0.
 *
 *     | a0 ... a7 | t1 ... t8 | ra: ip | t0: parent | ...
 *       ^ sp        ^ 64        ^ 128    ^ 136        ^ 144, the slot
 */
#define SAVED 144
#define SAVED_IP 128
#define SAVED_PARENT 136
#define IP 13	/* a column for it, as a call's return address is the parent: that of $t1 */
#define RA 1
#define T0 12

	.macro	arguments do, at=0
	\do	$a0, $sp, \at
	\do	$a1, $sp, \at+8
	\do	$a2, $sp, \at+16
	\do	$a3, $sp, \at+24
	\do	$a4, $sp, \at+32
	\do	$a5, $sp, \at+40
	\do	$a6, $sp, \at+48
	\do	$a7, $sp, \at+56
	.endm

	.macro	temporaries do, at=64
	\do	$t1, $sp, \at
	\do	$t2, $sp, \at+8
	\do	$t3, $sp, \at+16
	\do	$t4, $sp, \at+24
	\do	$t5, $sp, \at+32
	\do	$t6, $sp, \at+40
	\do	$t7, $sp, \at+48
	\do	$t8, $sp, \at+56		# the static chain
	.endm

/* gcc has a function's unwind information begin behind its pad. What is marked as a signal's frame is
 * looked for at its address, not before it. */
	.macro	entered
	.cfi_signal_frame
	.cfi_return_column IP
	.cfi_register IP, RA
	.cfi_register RA, T0
	.endm

	.macro	save
	addi.d	$sp, $sp, -SAVED
	.cfi_adjust_cfa_offset SAVED
	st.d	$ra, $sp, SAVED_IP
	.cfi_rel_offset IP, SAVED_IP
	st.d	$t0, $sp, SAVED_PARENT
	.cfi_rel_offset RA, SAVED_PARENT
	arguments st.d
	temporaries st.d
	.endm

	.macro	restore
	arguments ld.d
	temporaries ld.d
	ld.d	$ra, $sp, SAVED_PARENT
	.cfi_same_value RA
	ld.d	$t0, $sp, SAVED_IP
	.cfi_register IP, T0
	addi.d	$sp, $sp, SAVED
	.cfi_adjust_cfa_offset -SAVED
	.endm
