// SPDX-License-Identifier: MIT
/* The calls that a thread is in, of those that r probes follow. A call's frame alone does not tell: where a call was
 * left by longjmp or an exception, that stays until the next call or return as far up (frames_left()). So
 * what the call would return by must be there as well.
 *
 *     x86-64   | return_to_handler | its caller's frame ...
 *              ^ slot
 *     arm64    | x30: return_to_handler | locals | its caller's frame ...
 *              ^ anywhere in its own frame       ^ slot
 */
#include "fetch.h"

#define REACH (32ul << 10) /* bytes of a frame that are searched; in a larger one it is taken to be there */

/* A place on the stack where a hit is, and what is known of the calls above it. */
struct hit_place {
	ulong below;   /* frames end above this ... */
	ulong slot;    /* ... that of the last frame that was looked at */
	ulong nearest; /* slot of the innermost one */
	ulong page;    /* the last one known to be mapped */
};

/* Whether the call of the frame that `at` has come to can still return. */
static int is_open(struct hit_place *at, const struct registers *regs)
{
#ifdef RETURNS_FROM_SLOT
	(void)regs;
	return page_is_there(at->slot / LEAST_PAGE, &at->page) && is_handler((ulong *)at->slot);
#else
	ulong word = at->slot;

	if (at->slot == at->nearest && is_handler(return_place((struct registers *)regs)))
		return 1; /* it has not stored it, or jumped to what was hit */
	while (word > at->below) {
		word -= sizeof(ulong);
		if (at->slot - word > REACH)
			return 1;
		if (!page_is_there(word / LEAST_PAGE, &at->page))
			return 0;
		if (is_signed_handler((ulong *)word))
			return 1;
	}
	return 0;
#endif
}

/* Whether a frame is of the same call as the one that is next to it, further in: several probes of a function
 * push theirs in the order of their numbers. */
static int is_same_call(const struct frame *frame, const struct frame *inner)
{
	u32 number = (u32)frame->childtime, behind = (u32)inner->childtime;

#ifdef TOGETHER
	if ((frame->func | inner->func) & TRACED) /* no probe's */
		return 0;
#endif
	return frame->slot == inner->slot && number < behind &&
	       trace_probe(process.header, number)->ip == trace_probe(process.header, behind)->ip;
}

/* How many calls the thread is in that `count` probes from the `first` on follow, up to `most`. At a
 * return, the frame is still there: that call is no longer open, but one that jumped there is. */
static u32 calls_around(const struct thread *t, u32 number, u32 first, u32 count, u32 most,
			const struct probe_instance *instance, const struct registers *regs)
{
	u32 returns = probe_at(number)->flags & PROBE_RETURN, n = 0;
	ulong sp = instance->stack;

	for (; t; t = t->from) {
		struct hit_place at = {sp, sp, 0, sp / LEAST_PAGE};
		const struct frame *frame = t->top, *inner = 0, *own = 0;

		for (; frame-- > t->bottom; inner = frame) {
			u32 is_same;

			if (frame->slot < sp)
				continue;
			if (frame->slot > at.slot)
				at.below = at.slot;
			at.slot = frame->slot;
			at.nearest = at.nearest ?: at.slot;
			is_same = inner && is_same_call(frame, inner);
			if (returns && at.slot == sp &&
			    (own ? own == inner && is_same : (u32)frame->childtime == number)) {
				own = frame;
				continue;
			}
			if ((u32)frame->childtime - first >= count || (is_same && count == ANY))
				continue;
			n += (returns && at.slot == sp) || is_open(&at, regs);
			if (n == most)
				return n;
		}
	}
	return n;
}

/* For one function's probes, one frame is enough. */
int is_within(const struct thread *t, u32 number, const struct fetch *step,
	      const struct probe_instance *instance, const struct registers *regs)
{
	return (int)calls_around(t, number, (u32)step->value, step->what, 1, instance, regs);
}

u32 calls_deep(const struct thread *t, u32 number, const struct probe_instance *instance,
	       const struct registers *regs)
{
	return calls_around(t, number, 0, ANY, ANY, instance, regs);
}
