/* SPDX-License-Identifier: MIT */
/* What ftrace_caller keeps, of a program and of a library: all that C functions may change but %r1, and
 * below it the room that they expect of their caller (s390x ELF ABI, 1.2.2, "The Stack Frame").
 *
 *     | 160 bytes | r0 | r1: ip | r2 ... r6 | r14: parent | ...
 *       ^ r15       ^ 160         ^ 176       ^ 216         ^ 224, the slot: r15, where it was
 */
#define ROOM 160			/* also from the slot to the CFA */
#define SAVED 224
#define SAVED_IP 168
#define SAVED_ARGUMENTS 176
#define SAVED_PARENT 216

/* What return_to_handler keeps: entry.S. */
#define KEPT 184
#define PLACE 160
#define RESULTS 168

	.macro	entered			/* the function expects its parent in r14 */
	.cfi_return_column %r1
	.endm

	.macro	save
	aghi	%r15, -SAVED
	.cfi_adjust_cfa_offset SAVED
	.cfi_val_offset %r15, -ROOM
	stmg	%r0, %r6, ROOM(%r15)	/* r0 is the static chain, r6 has an argument */
	.cfi_rel_offset %r1, SAVED_IP
	stg	%r14, SAVED_PARENT(%r15)
	.cfi_rel_offset %r14, SAVED_PARENT
	.endm

	.macro	restore
	lmg	%r0, %r5, ROOM(%r15)	/* calls keep r6 */
	.cfi_same_value %r1
	lg	%r14, SAVED_PARENT(%r15)
	.cfi_same_value %r14
	aghi	%r15, SAVED
	.cfi_adjust_cfa_offset -SAVED
	.cfi_same_value %r15
	.endm
