/* SPDX-License-Identifier: MIT */
/* A signal handler's context, and the registers' place in it (arch/x86/include/uapi/asm). Strict
 * mode lets sigreturn() through, and not rt_sigreturn(): so no SA_SIGINFO. */
#define FAULT_FLAGS (0x04000000 | 0x10000000) /* SA_RESTORER | SA_RESTART */

struct old_context {
	ulong before[9]; /* of struct sigcontext: gs to bx */
	ulong dx, cx, ax, trap, error, ip;
};

/* The registers are passed on the stack, and restored from there. */
static void clock_fault(int signal, struct old_context context)
{
	volatile struct old_context *kept = &context;
	ulong ip = kept->ip, ax = kept->ax, dx = kept->dx;

	(void)signal;
	if (!was_clock(&ip, &ax, &dx))
		as_before();
	kept->ip = ip;
	kept->ax = ax;
	kept->dx = dx;
}
