/* SPDX-License-Identifier: MIT */
/* No system call is redirected on an architecture without traps, whose signal the program could take or
 * block (ftpatch/arch has no system_calls.py for it): its system_calls.c has nothing else. */
#ifndef FTPATCH_NO_LEADS_H
#define FTPATCH_NO_LEADS_H

#include "system_calls.h"

int lead_found(const u8 *start, const u8 *end, const u8 **at, struct lead *lead)
{
	(void)start;
	(void)end;
	(void)at;
	(void)lead;
	return 0;
}

void lead_jump(u8 *to, ulong address, ulong target)
{
	(void)to;
	(void)address;
	(void)target;
}

void lead_stub(u8 *to, ulong address, const struct lead *lead)
{
	(void)to;
	(void)address;
	(void)lead;
}

u32 lead_linker(u8 *to, const u8 *at)
{
	(void)to;
	(void)at;
	return 0;
}

ulong lead_behind(ulong back)
{
	(void)back;
	return 0;
}

#endif
