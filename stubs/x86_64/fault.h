/* What a signal handler gets, and where the registers lie in it (arch/x86/include/uapi/asm). */
#define FAULT_FLAGS (0x4 | 0x04000000 | 0x10000000) /* SA_SIGINFO | SA_RESTORER | SA_RESTART */

struct context {
	ulong before[17]; /* struct ucontext up to uc_mcontext, and of that r8 to rbx */
	ulong dx, ax, cx, sp, ip;
};

static void clock_fault(int signal, const void *info, struct context *context)
{
	(void)signal;
	(void)info;
	if (!was_clock(&context->ip, &context->ax, &context->dx))
		as_before();
}
