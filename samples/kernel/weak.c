// SPDX-License-Identifier: MIT
/*
 * The weak defaults. arch.c overrides two of the three: the linker keeps the code and the
 * records of those, and no symbol names them any more.
 */
#include "kernel.h"

__weak void arch_cpu_idle(void)
{
	cpu_halt();
}

__weak void arch_show_mem(uint32_t *total)
{
	*total = 0;
}

__weak unsigned long arch_randomize_brk(unsigned long brk)
{
	return (brk + 0xfff) & ~0xffful;
}
