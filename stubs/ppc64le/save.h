/* SPDX-License-Identifier: MIT */
/* What ftrace_caller keeps, of a program and of a library: all that hold arguments (psABI, ELFv2,
 * 2.2.1.1), and r2, r11 and r12; with what C functions expect of their caller's frame (2.2.2.1).
 *
 *     | back chain, CR, LR, r2 | r3 ... r10 | r11, r12 | LR: ip | r0: parent | ...
 *       ^ r1                     ^ 32         ^ 96       ^ 112    ^ 120        ^ 128, the slot
 */
#define SAVED 128
#define SAVED_TOC 24
#define SAVED_ARGUMENTS 32
#define SAVED_IP 112
#define SAVED_PARENT 120
#define LR 65				/* DWARF numbers: psABI, ELFv2, 2.4 */
#define CTR 66

	.macro	volatile do
	.irp	n, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
	\do	\n, SAVED_ARGUMENTS + 8 * (\n - 3)(1)
	.endr
	.endm

	.macro	entered			/* the function expects its parent in LR */
	.cfi_return_column CTR
	.cfi_register CTR, LR
	.cfi_register LR, 0
	.endm

	.macro	save
	stdu	1, -SAVED(1)
	.cfi_adjust_cfa_offset SAVED
	std	0, SAVED_PARENT(1)
	.cfi_rel_offset LR, SAVED_PARENT
	mflr	0
	std	0, SAVED_IP(1)
	.cfi_rel_offset CTR, SAVED_IP
	std	2, SAVED_TOC(1)
	.cfi_rel_offset 2, SAVED_TOC
	volatile std
	.endm

	.macro	restore
	volatile ld
	ld	2, SAVED_TOC(1)
	.cfi_same_value 2
	ld	0, SAVED_IP(1)
	mtctr	0
	.cfi_same_value CTR
	ld	0, SAVED_PARENT(1)
	mtlr	0
	.cfi_same_value LR
	addi	1, 1, SAVED
	.cfi_adjust_cfa_offset -SAVED
	.endm
