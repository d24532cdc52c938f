/* SPDX-License-Identifier: MIT */
/* The symbols that sites call, and thunks of PLT entries: the architecture's macro `caller` behind each. */
#ifdef TOGETHER
#define ftrace_caller ftrace_site_caller	/* probes.S has the other */
#endif
#if (!defined(PROBES) && !defined(REGS)) || defined(TOGETHER)	/* probes.S and regs.S have their own */
	.globl	ftrace_caller
	.type	ftrace_caller, %function
#ifdef ARGS
	.globl	ftrace_regs_caller
	.type	ftrace_regs_caller, %function
#endif
	.p2align 6
ftrace_caller:
#ifdef ARGS
ftrace_regs_caller:			/* arguments are always readable */
#endif
	caller
	.size	ftrace_caller, . - ftrace_caller
#ifdef ARGS
	.size	ftrace_regs_caller, . - ftrace_regs_caller
#endif

#ifndef TOGETHER
	.globl	ftrace_plt_caller
	.type	ftrace_plt_caller, %function
	.p2align 6
ftrace_plt_caller:
	caller	thunk=1
	.size	ftrace_plt_caller, . - ftrace_plt_caller
#endif
#endif
