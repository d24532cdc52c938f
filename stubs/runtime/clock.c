// SPDX-License-Identifier: MIT
/* A process that gives up all but four system calls (seccomp's strict mode) loses the time-stamp
 * counter as well: seccomp_set_mode_strict() calls disable_TSC(), and rdtsc raises SIGSEGV. If a
 * program may do so, there is a handler: it makes the instruction return the latest time that the
 * thread has seen. Any other SIGSEGV keeps its effect. */
#include "action.h"
#include "threads.h"

#ifdef CLOCK_INSTRUCTION

extern const char runtime_end[] __attribute__((visibility("hidden")));

void clock_restorer(void) __attribute__((visibility("hidden")));

static u64 latest(void)
{
	ulong tp = thread_pointer();
	struct thread *t = tp ? known_at(tp)->thread : 0;
#ifdef REGS
	u64 now = process.ticks;
#else
	u64 now = process.header ? process.header->ticks : 0;
#endif

	if (t && t->tp == tp) {
		now = t->base > now ? t->base : now;
		if (t->top > t->bottom && t->top[-1].calltime > now)
			now = t->top[-1].calltime;
	}
	return now;
}

static long act(struct action *new, struct action *old)
{
	return act_on(SIGSEGV, new, old);
}

/* Whether the runtime's own clock faulted; if so, set the registers as if it had worked. */
static int was_clock(ulong *ip, ulong *low, ulong *high)
{
	u64 now;

	if (*ip < (ulong)&ftpatch_config || *ip >= (ulong)runtime_end ||
	    *(const u16 *)*ip != CLOCK_INSTRUCTION)
		return 0;
	now = latest();
	*low = (u32)now;
	*high = (u32)(now >> 32);
	*ip += 2;
	return 1;
}

/* Blocked while it is being handled, and pending: afterwards it acts as it would without a handler.
 * */
static void as_before(void)
{
	struct action none = {0, 0, 0, 0};

	act(&none, 0);
	syscall6(SYS_tgkill, syscall6(SYS_getpid, 0, 0, 0, 0, 0, 0),
		 syscall6(SYS_gettid, 0, 0, 0, 0, 0, 0), SIGSEGV, 0, 0, 0);
}

#include "fault.h"

/* Install ours if the program starts with no handler of this signal. */
void clock_kept(void)
{
	struct action old = {0, 0, 0, 0}, new = {clock_fault, FAULT_FLAGS, clock_restorer, 0};

	if (act(0, &old) == 0 && !old.handler)
		act(&new, 0);
}
#else
void clock_kept(void)
{
}
#endif
