/* SPDX-License-Identifier: MIT */
	.abiversion 2

/* r2 for the runtime: whoever is entered first has another. LR is lost. */
	.macro	own_toc
	bcl	20, 31, 9f		/* is no call to branch prediction */
9:	mflr	2
	addis	2, 2, (.TOC. - 9b)@ha
	addi	2, 2, (.TOC. - 9b)@l
	.endm
