/* Breakpoints: the instruction is found by its address, and its detour goes on in its place. So there
 * is no single step, and nothing to be done afterwards. */
#ifdef WATCH
#include "watch.h"
#else
#include "probes.h"
#endif

#define SIGTRAP 5
#define SIG_DFL 0
#define SA_SIGINFO 4ul
#define SA_ONSTACK 0x08000000ul
#define SA_RESTART 0x10000000ul
#define SA_NODEFER 0x40000000ul
#define SIG_UNBLOCK 1

struct action {
	void *handler;
	ulong flags;
	void *restorer;
	u64 mask;
};

static long act(const struct action *new)
{
	return syscall6(SYS_rt_sigaction, SIGTRAP, (long)new, 0, sizeof(new->mask), 0, 0);
}

#ifndef WATCH
/* Link address of the detour of a breakpoint, 0 for none of ours. */
static u64 detour_of(u64 address)
{
	const struct probe_table *table = probe_table();
	const struct probe_place *places = linked(struct probe_place, table->places);
	u32 low = 0, high = table->place_count;

	while (low < high) {
		u32 middle = (low + high) / 2;

		if (places[middle].address == address)
			return places[middle].detour;
		if (places[middle].address < address)
			low = middle + 1;
		else
			high = middle;
	}
	return 0;
}
#endif

static void trapped(int signal, const void *info, struct context *context)
{
#ifdef WATCH
	(void)signal;
	if (watch_trapped(info, context))
		return;
	struct action none = {SIG_DFL, 0, 0, 0};
#else
	u64 detour = detour_of(context->ip - TRAP_BACK - process.bias);
	struct action none = {SIG_DFL, 0, 0, 0};

	(void)signal;
	(void)info;
	if (detour) {
		context->ip = (ulong)(detour + process.bias);
		return;
	}
#endif
	/* Not ours: what it does without a handler. */
	act(&none);
	syscall6(SYS_tgkill, syscall6(SYS_getpid, 0, 0, 0, 0, 0, 0),
		 syscall6(SYS_gettid, 0, 0, 0, 0, 0, 0), SIGTRAP, 0, 0, 0);
}

void traps_caught(void)
{
	struct action own = {0, SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_NODEFER, 0, 0};
	void *handler = trapped;
	u64 mask = 1ull << (SIGTRAP - 1);

#ifdef WATCH
	own.mask = ~(mask | 1ull << (SIGSEGV - 1)); /* what others do waits; not so our own look */
#else
	if (!ftpatch_config.probes || !probe_table()->traps)
		return;
#endif
	__asm__("" : "+r"(handler)); /* no struct of constants: nobody relocates it */
	own.handler = handler;
	restored_by(&own.flags, &own.restorer);
	act(&own);
	syscall6(SYS_rt_sigprocmask, SIG_UNBLOCK, (long)&mask, 0, sizeof(mask), 0, 0);
}
