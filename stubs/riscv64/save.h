/* SPDX-License-Identifier: MIT */
/* What ftrace_caller keeps, of a program and of a library: all that C functions may change but t0.
 *
 *     | a0 ... a7 | t1 ... t6 | t0: ip | ra: parent | ...
 *       ^ sp        ^ 64        ^ 112    ^ 120        ^ 128, the slot
 */
#define SAVED 128
#define SAVED_IP 112
#define SAVED_PARENT 120

	.macro	arguments do, at=0
	\do	a0, \at(sp)
	\do	a1, \at+8(sp)
	\do	a2, \at+16(sp)
	\do	a3, \at+24(sp)
	\do	a4, \at+32(sp)
	\do	a5, \at+40(sp)
	\do	a6, \at+48(sp)
	\do	a7, \at+56(sp)
	.endm

	.macro	temporaries do, at=64
	\do	t1, \at(sp)
	\do	t2, \at+8(sp)			/* the static chain */
	\do	t3, \at+16(sp)
	\do	t4, \at+24(sp)
	\do	t5, \at+32(sp)
	\do	t6, \at+40(sp)
	.endm

	.macro	save
	addi	sp, sp, -SAVED
	.cfi_adjust_cfa_offset SAVED
	sd	t0, SAVED_IP(sp)
	.cfi_rel_offset t0, SAVED_IP
	sd	ra, SAVED_PARENT(sp)
	.cfi_rel_offset ra, SAVED_PARENT
	arguments sd
	temporaries sd
	.endm

	.macro	restore
	arguments ld
	temporaries ld
	ld	ra, SAVED_PARENT(sp)
	.cfi_same_value ra
	ld	t0, SAVED_IP(sp)
	.cfi_same_value t0
	addi	sp, sp, SAVED
	.cfi_adjust_cfa_offset -SAVED
	.endm
