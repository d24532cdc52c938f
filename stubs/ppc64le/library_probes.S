/* SPDX-License-Identifier: MIT */
/* Injected into a shared library that is probed with a program: its detours go on to the program's
 * runtime, once that has set the address (libraries.h); in other programs never. LR, r12 and cr0 are put
 * into the detour's frame, where the program's ftrace_library_caller takes the first two from. */
	.file	"library_probes.S"
#include "offsets.h"
#include "save.h"
#include "toc.h"
#include "detour.h"
#include "library_hook.h"
	.cfi_sections .eh_frame, .debug_frame
	.globl	ftrace_caller, ftrace_regs_caller
	.type	ftrace_caller, @function
	.type	ftrace_regs_caller, @function
	.p2align 6
ftrace_caller:
ftrace_regs_caller:			/* mid-function: all flags are kept */
	.cfi_startproc
	mflr	0
	std	0, DETOUR_BACK(1)
	.cfi_offset LR, DETOUR_BACK
	std	12, DETOUR_R12(1)
	bcl	20, 31, 1f		/* is no call to branch prediction */
1:	mflr	12
	addis	12, 12, (ftpatch_library + LIBRARY_HOOK_ENTRY - 1b)@ha
	addi	12, 12, (ftpatch_library + LIBRARY_HOOK_ENTRY - 1b)@l
	ld	12, 0(12)
	mfocrf	0, 0x80			/* cr0 */
	cmpdi	12, 0
	beq	2f
	mtocrf	0x80, 0
	lwsync				/* what it leads to was written first */
	mtlr	12
	blr
2:	mtocrf	0x80, 0
	ld	0, DETOUR_BACK(1)
	mtlr	0
	.cfi_restore LR
	ld	12, DETOUR_R12(1)
	blr
	.cfi_endproc
	.size	ftrace_caller, . - ftrace_caller
	.size	ftrace_regs_caller, . - ftrace_regs_caller
	.section .note.GNU-stack, "", @progbits
