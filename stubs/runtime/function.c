/* The function tracer: entries, with where they were called from. */
#include "threads.h"

REGISTERS void trace_entry(ulong ip, ulong *place, ulong slot)
{
	struct thread *t = current_thread();
	u64 now, func, *at;

	if (unlikely(!t)) {
		if (!process.ready)
			__atomic_fetch_add(&process.early, 1, __ATOMIC_RELAXED);
		return;
	}
	if (unlikely(is_nested(t, slot))) {
		lost(LOST_NESTED);
		return;
	}
	t->busy = slot;
	barrier();
	now = ticks();
	at = process.header ? event_at(t, now, 2) : 0;
	if (likely(at)) {
		func = (u64)(ip - process.bias - (ulong)ftpatch_config.base) << TYPE_BITS;
		at[1] = *place;
		barrier();
		at[0] = event(t, now, func, EVENT_ENTRY_FROM);
		t->pos = at + 2;
	} else {
		lost(LOST_FULL);
	}
	barrier();
	t->busy = 0;
}

/* Never called: this tracer hooks no return. */
REGISTERS void trace_return(ulong *place, ulong slot)
{
	(void)place;
	(void)slot;
}
