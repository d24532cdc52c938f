// SPDX-License-Identifier: MIT
/* A stub of one's own that changes registers: every second call of a traced function fails, without
 * having run, as with CONFIG_FAIL_FUNCTION of the kernel.
 *
 *     gcc $(ftpatch --cflags) fails.c -o fails.elf
 *     ftpatch enable PROG --tracer ./fails.elf -f FUNC -o OUT
 *
 * For what else there is, see ftrace_regs.h.
 */
#include <ftrace_regs.h>

void ftrace_regs_caller(struct fgraph_call *call, struct ftrace_regs *regs)
{
	static unsigned int calls;

	(void)call;
	if (__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) % 2)
		return;
	ftrace_regs_set_return_value(regs, -1ul);
	ftrace_override_function_with_return(regs);
}
