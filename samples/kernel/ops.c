// SPDX-License-Identifier: MIT
/* What ftrace_caller follows when sites carry a pointer to their ops (CALL_OPS): arm64, riscv64. */
#include "kernel.h"

struct ftrace_ops;
typedef void (*ftrace_func_t)(unsigned long ip, unsigned long parent, struct ftrace_ops *op,
			      void *regs);

/* entry-<arch>.S loads .func at offset 0. */
struct ftrace_ops {
	ftrace_func_t func;
	struct ftrace_ops *next;
	unsigned long flags;
};

#define FTRACE_OPS_FL_STUB (1ul << 7)

static uint64_t list_calls;

own_symbol notrace void ftrace_ops_nop_func(unsigned long ip, unsigned long parent,
					    struct ftrace_ops *op, void *regs)
{
	(void)ip, (void)parent, (void)op, (void)regs;
}

notrace void arch_ftrace_ops_list_func(unsigned long ip, unsigned long parent,
				       struct ftrace_ops *op, void *regs)
{
	(void)ip, (void)parent, (void)op, (void)regs;
	list_calls++;
}

const struct ftrace_ops ftrace_list_ops = {
	.func = arch_ftrace_ops_list_func,
	.flags = FTRACE_OPS_FL_STUB,
};

const struct ftrace_ops ftrace_nop_ops = {
	.func = ftrace_ops_nop_func,
	.flags = FTRACE_OPS_FL_STUB,
};

/*
 * A pointer at an odd address: .relr.dyn cannot describe it, so that .rela.dyn has a
 * R_AARCH64_RELATIVE of its own beside the unused entries.
 */
const struct __attribute__((packed)) {
	char tag;
	ftrace_func_t func;
} ftrace_default_tracer = { 'f', arch_ftrace_ops_list_func };
