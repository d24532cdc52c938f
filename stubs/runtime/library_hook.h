/* SPDX-License-Identifier: MIT */
/* struct library_hook of libraries.h, for library.S. */
	.data
	.p2align 4
	.globl	ftpatch_library
	.type	ftpatch_library, %object
ftpatch_library:
	.ascii	LIBRARY_MAGIC
	.org	ftpatch_library + SIZEOF_LIBRARY_HOOK
	.size	ftpatch_library, . - ftpatch_library
	.text
