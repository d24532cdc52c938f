/* SPDX-License-Identifier: MIT */
/* What a signal handler gets, and where the registers lie in it (arch/x86/include/uapi/asm). Strict
 * mode lets sigreturn() through, and not rt_sigreturn(): so no SA_SIGINFO. */
#define FAULT_FLAGS (0x04000000 | 0x10000000) /* SA_RESTORER | SA_RESTART */

struct context {
	ulong before[9]; /* of struct sigcontext: gs to bx */
	ulong dx, cx, ax, trap, error, ip;
};

/* The registers lie on the stack, as an argument, and are taken back from there. */
static void clock_fault(int signal, struct context context)
{
	volatile struct context *kept = &context;
	ulong ip = kept->ip, ax = kept->ax, dx = kept->dx;

	(void)signal;
	if (!was_clock(&ip, &ax, &dx))
		as_before();
	kept->ip = ip;
	kept->ax = ax;
	kept->dx = dx;
}
