/* SPDX-License-Identifier: MIT */
/* function_profile: what a thread's calls come to. Its chunk is a table of functions:
 *
 *     | struct trace_chunk | struct trace_profile | ...      place 0 is the header
 */
#ifndef FTPATCH_PROFILE_H
#define FTPATCH_PROFILE_H

#include "threads.h"

static inline struct trace_profile *profile_of(struct thread *t, u64 func, u64 now)
{
	u32 places = ftpatch_config.profile / sizeof(struct trace_profile);
	struct trace_profile *table;
	u64 *pos = t->pos;
	u32 at, tries;

	if (unlikely(!pos)) {
		if (!chunk_taken(t, now))
			return 0;
		pos = t->pos;
	}
	table = (struct trace_profile *)pos - 1;
	at = (u32)(func >> TYPE_BITS) * 0x9e3779b1u >> 8;
	func = (func >> TYPE_BITS) + 1;
	for (tries = 0; tries < places; tries++, at++) {
		struct trace_profile *entry = &table[at & (places - 1)];

		if (unlikely(entry == table))
			continue; /* that is the header */
		if (likely(entry->func == func))
			return entry;
		if (!entry->func) {
			entry->func = func;
			return entry;
		}
	}
	return 0;
}

/* A call counts when it is made, as many never return. Its frame holds the entry instead of the
 * function; 0 if there was no room. */
static inline u64 profile_entered(struct thread *t, u64 func, u64 now)
{
	struct trace_profile *entry = profile_of(t, func, now);

	if (unlikely(!entry)) {
		lost(t, LOST_FULL);
		return 0;
	}
	entry->hits++;
	return (u64)(ulong)entry;
}

/* The time until now is the call's. It may continue later, if it was only unwound. */
static inline void profile_left(struct thread *t, struct frame *frame, u64 now)
{
	struct trace_profile *entry = (struct trace_profile *)(ulong)frame->func;
	u64 total = now - frame->calltime;

	if (unlikely(!entry))
		return;
	if (frame > t->bottom && frame < t->top)
		frame[-1].childtime += total;
	entry->total += total;
	entry->self += total - frame->childtime;
	frame->calltime = now;
	frame->childtime = 0;
}

#endif
