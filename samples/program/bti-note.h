/* SPDX-License-Identifier: MIT */
/* Says that this file's code keeps to BTI; without it the linker drops the property. */
	.macro	BTI_NOTE
	.section .note.gnu.property, "a"
	.balign	8
	.long	4, 16, 5			// name, descriptor, NT_GNU_PROPERTY_TYPE_0
	.asciz	"GNU"
	.long	0xc0000000, 4, 3, 0		// FEATURE_1_AND: BTI, PAC
	.endm
