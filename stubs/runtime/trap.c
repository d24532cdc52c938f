// SPDX-License-Identifier: MIT
/* Breakpoints: the instruction is found by its address, and execution continues in its detour. So
 * there is no single-stepping, and nothing to do afterwards. */
#include "context.h"
#include "hooks.h"
#ifdef WATCH
#include "watch.h"
#else
#include "probes.h"
#endif

#define SIG_DFL 0
#define SA_ONSTACK 0x08000000ul
#define SA_NODEFER 0x40000000ul
/* Blocked meanwhile: all but synchronous signals. */
#define WAITING (~(1ull << (SIGTRAP - 1) | 1ull << (SIGSEGV - 1) | 1ull << (SIGILL - 1) | \
		   1ull << (SIGBUS - 1) | 1ull << (SIGFPE - 1)))
#define SA_INTERRUPT 0x20000000ul /* ignored by the kernel, which may or may not keep it */
#define KNOWN_FLAGS 0xdc000807ul  /* UAPI_SA_FLAGS, and SA_RESTORER */
#define SIGBUS 7
#define SIGFPE 8

static long act(const struct action *new, struct action *old)
{
	return act_on(OUR_SIGNAL, new, old);
}

void signal_raised(void)
{
	syscall6(SYS_tgkill, syscall6(SYS_getpid, 0, 0, 0, 0, 0, 0),
		 syscall6(SYS_gettid, 0, 0, 0, 0, 0, 0), OUR_SIGNAL, 0, 0, 0);
}

#ifndef WATCH
/* Link address of a breakpoint's detour, 0 if it is not ours. */
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

static LANDING void trapped(int signal, struct trap_info *info, struct context *context)
{
	struct action none = ACTION(SIG_DFL, 0, 0);
#ifdef WATCH

	if (watch_trapped(info, context))
		return;
#else
	u64 detour = detour_of(context->ip - TRAP_BEHIND - process.bias);

	if (detour && info->code > 0) {
		goes_on(context, (ulong)(detour + process.bias));
		return;
	}
#endif
	if (!signal_passed_on(signal, info, context, info->code <= 0)) {
		act(&none, 0);
		if (info->code <= 0 || OUR_SIGNAL == SIGTRAP)
			signal_raised(); /* otherwise the instruction is retried */
	}
}

/* Catch them. The signal is the program's no more. */
void traps_taken(void)
{
	struct action old = ACTION(0, 0, 0);
	struct action own = ACTION(0, SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_NODEFER, WAITING);
	void *handler = trapped;

#ifdef WATCH
	/* Other signals wait, but not the ones that our own look at the value raises. */
	own.mask = ~(1ull << (OUR_SIGNAL - 1) | 1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1));
#endif
	__asm__("" : "+r"(handler)); /* no constant struct: nothing would relocate it */
	own.handler = handler;
#ifdef TRAP_RESTORER /* elsewhere the kernel provides what a handler returns by */
	own.flags |= 0x04000000; /* SA_RESTORER */
	own.restorer = TRAP_RESTORER;
#endif
	own.flags |= SA_INTERRUPT;
	act(&own, &old);
	act(0, &own);
	signal_taken_over(&old, own.flags & SA_INTERRUPT ? ~0ul : KNOWN_FLAGS);
}

/* A process that runs already is told to, once its system calls are redirected. */
void traps_caught(void)
{
#ifdef WATCH
	traps_taken();
	slots_set();
#else
	if (ftpatch_config.probes && probe_table()->traps && !(ftpatch_config.flags & TRACE_ATTACHED))
		traps_taken();
#endif
}
