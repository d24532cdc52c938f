// SPDX-License-Identifier: MIT
/* System calls in riscv64 code: `ecall`, with the number in a7. None is redirected. No register is free
 * at an ecall, and `jal`, which needs none, goes 1 MB far: libc alone is larger. So there are no traps,
 * whose signal the program could take or block (ftpatch/arch/riscv64 has no system_calls.py). */
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
