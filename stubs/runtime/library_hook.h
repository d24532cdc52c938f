/* struct library_hook of libraries.h, for library.S. */
#define ENTRY 48	/* offsetof(struct library_hook, entry) */
#define DELTA 56	/* ... delta */

	.data
	.p2align 4
	.globl	ftpatch_library
	.type	ftpatch_library, @object
ftpatch_library:
	.ascii	"FTPATCHLIB\0v1\0\0\0"
	.skip	32			/* image_id */
	.quad	0			/* entry */
	.quad	0			/* delta */
	.size	ftpatch_library, . - ftpatch_library
	.text
