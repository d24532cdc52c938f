/* SPDX-License-Identifier: MIT */
/* Sites of x86, for a user's functions that take registers. `LANDS` is the architecture's ENDBR. */
#ifndef FTPATCH_SITES_H
#define FTPATCH_SITES_H

#include "ftrace_regs.h"

/* Of the call before `ip`: e8 rel32, or 67 e8 rel32 where there was one through the GOT. */
static inline ulong site_of(ulong ip)
{
	ulong site = ip - 5;

	return site % PAGE && ((const u8 *)site)[-1] == 0x67 ? site - 1 : site;
}

/* Of a site's function, which may begin with ENDBR. That is not behind a page's start: it is four
 * bytes, and functions that have it are reached by addresses that are aligned to them. */
static inline ulong function_of(ulong site)
{
	return site % PAGE >= 4 && *(const u32 *)(site - 4) == LANDS ? site - 4 : site;
}

/* Where a function returns to, which trace_return() writes there as well. */
static inline void goes_back(struct ftrace_regs *regs, ulong parent)
{
	regs->ip = parent;
}

#endif
