// SPDX-License-Identifier: MIT
/* The tracer that does nothing, to measure the call itself. Its ftrace_caller is a return. */
#include "threads.h"

REGISTERS void trace_entry(ulong ip, ulong *place, ulong slot)
{
	(void)ip;
	(void)place;
	(void)slot;
}

REGISTERS void trace_return(ulong *place, ulong slot)
{
	(void)place;
	(void)slot;
}
