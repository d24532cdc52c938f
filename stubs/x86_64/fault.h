/* SPDX-License-Identifier: MIT */
/* A signal handler's context, and the registers' place in it (arch/x86/include/uapi/asm). */
#define FAULT_FLAGS (0x4 | 0x04000000 | 0x10000000) /* SA_SIGINFO | SA_RESTORER | SA_RESTART */

static void clock_fault(int signal, const void *info, struct context *context)
{
	(void)signal;
	(void)info;
	if (!was_clock(&context->ip, &context->ax, &context->dx))
		as_before();
}
