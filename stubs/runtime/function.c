// SPDX-License-Identifier: MIT
/* The function tracer: entries, with their callers. */
#include "threads.h"

REGISTERS void trace_entry(ulong ip, ulong *place, ulong slot)
{
	struct thread *t;
	u64 now, func, *at;

	if (unlikely(is_off()))
		return;
	t = begun(slot);
	if (unlikely(!t))
		return;
	now = ticks();
	at = process.header ? event_at(t, now, 2) : 0;
	if (unlikely(!at)) {
		lost(t, LOST_FULL);
	} else if (place_holds(t, at)) {
		func = (u64)(ip - process.bias - (ulong)ftpatch_config.base) << TYPE_BITS;
		at[1] = *place;
		event_put(t, at, 2, event(t, now, func, EVENT_ENTRY_FROM));
	} else {
		lost(t, LOST_NESTED);
	}
	end(t, slot);
}

/* Never called: this tracer hooks no returns. */
REGISTERS void trace_return(ulong *place, ulong slot)
{
	(void)place;
	(void)slot;
}
