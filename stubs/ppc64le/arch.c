// SPDX-License-Identifier: MIT
#include "runtime.h"

#ifdef REGS
#define OF_R12 0x3c4c0000u	/* addis r2, r12, ... */
#define UPPER 0x3c400000u	/* lis r2, ... of a linker that knows it */
#define LOADED 0xe84c0000u	/* ld r2, ...(r12) of the large code model */
#define ADDED 0x38420000u	/* addi r2, r2, ... */
#define SUM 0x7c426214u		/* add r2, r2, r12 */
#define MINIMUM_PAGE 4096

/* The global entry of a site's function, where it has another: two instructions before the local one, where
 * the site is (ftpatch/arch/ppc64le/encode.py). What is in front of a page may not be there, unless that is
 * the program's code. */
ulong function_of(ulong site)
{
	ulong local = site - 4;
	const u32 *at = (const u32 *)local - 2;
	u32 first, second;

	if (local % MINIMUM_PAGE < 8 && (ulong)at < (ulong)ftpatch_config.base + process.bias)
		return local;
	first = at[0] & 0xffff0000u;
	second = at[1];
	if (first == LOADED ? second == SUM : (first == OF_R12 || first == UPPER) && (second & 0xffff0000u) == ADDED)
		return (ulong)at;
	return local;
}
#endif
