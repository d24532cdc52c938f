// SPDX-License-Identifier: MIT
/* Changes nothing that a program sees, and traps where something is not as it was promised: a return
 * has what its entry left, where the stack is aligned, and times go on.
 *
 * With -DCOUNTS, after each outermost call: how many were told, missed, left alone and lost, as words
 * to descriptor 9. */
#include "ftrace_regs.h"
#include "said.h"

static unsigned long told;

static void aligned(void)
{
	unsigned long long here[2] __attribute__((aligned(16)));
	unsigned long at;

	__asm__ volatile("" : "=r"(at) : "0"(here) : "memory");
	if (at % 16)
		__builtin_trap();
}

void ftrace_regs_caller(struct fgraph_call *call, struct ftrace_regs *regs)
{
	aligned();
	__atomic_add_fetch(&told, 1, __ATOMIC_RELAXED);
	if (call->data || call->rettime || call->ip - call->func > 12 || !call->tid)
		__builtin_trap();
	if (ftrace_regs_get_instruction_pointer(regs) - call->ip > 12)
		__builtin_trap();
	call->data = call->func ^ (unsigned long)call->calltime;
}

void ftrace_regs_return(struct fgraph_call *call, struct ftrace_regs *regs)
{
	aligned();
	if (call->data != (call->func ^ (unsigned long)call->calltime) || call->rettime < call->calltime)
		__builtin_trap();
	if (ftrace_regs_get_instruction_pointer(regs) != call->parent)
		__builtin_trap();
#ifdef COUNTS
	if (!call->depth) {
		unsigned long long all[] = {told, call->missed, call->overrun, call->lost};

		said(9, all, sizeof(all));
	}
#endif
}
