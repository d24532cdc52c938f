// SPDX-License-Identifier: MIT
/* Frames that are no longer their thread's innermost: unwound, kept, found in another thread. */
#include "threads.h"

#ifdef PROFILE
#include "profile.h"
#endif
#ifdef PROBES
#include "probes.h"
#else
#define instance_freed(frame) ((void)(frame))
#endif

/* The pending frame of this slot in any thread, since contexts migrate: the latest, as older ones
 * of that slot may be dead. NULL if there is none. */
REGISTERS struct frame *frame_elsewhere(ulong slot)
{
	struct thread *t;
	struct frame *frame, *latest = 0;

	for (t = process.threads; t; t = t->next)
		for (frame = t->top; frame-- > t->low;)
			if (frame->slot == slot && !is_handler(&frame->ret) &&
			    (!latest || frame->calltime > latest->calltime))
				latest = frame;
	return latest;
}

static inline void copy(struct frame *to, const struct frame *from)
{
	to->ret = from->ret;
	to->func = from->func;
	to->calltime = from->calltime;
	to->childtime = from->childtime;
	barrier();
	to->slot = from->slot;
}

/* Keep an unwound frame, as it may come back. 0 if there is no room. */
static REGISTERS int keep(struct thread *t, const struct frame *gone)
{
	struct frame *frame, *free = 0;

	for (frame = t->low; frame < t->bottom; frame++) {
		if (frame->slot == gone->slot) {
			if (is_handler(&gone->ret))
				return 1; /* a tail call whose caller is kept already */
			break; /* overwritten, and not coming back */
		}
		if (!frame->slot)
			free = frame;
	}
	if (frame == t->bottom)
		frame = free;
	if (!frame)
		return 0;
	copy(frame, gone);
	return 1;
}

/* A thread has ended. Its frames may live on: a coroutine can continue in another thread. */
REGISTERS void frames_kept(struct thread *t)
{
	struct frame *frame;

	for (frame = t->top; frame-- > t->bottom;) {
		instance_freed(frame);
		keep(t, frame);
	}
	t->top = t->bottom;
}

/* Truncate the ret_stack to `frame`, and record it in the trace. */
static REGISTERS void left(struct thread *t, struct frame *frame, u64 now)
{
#if !defined(PROFILE) && !defined(USER) && (!defined(PROBES) || defined(TOGETHER))
	u64 n = 0, *at;
	struct frame *gone;

	for (gone = frame; gone < t->top; gone++)
		n += (gone->func & TRACED) != 0; /* those of a fork's parent are not in this trace */
	at = n ? event_at(t, now, 1) : 0;
	if (at)
		event_put(t, at, 1, event(t, now, n << TYPE_BITS, EVENT_UNWOUND));
#else
	(void)now;
#endif
	t->top = frame;
}

/* Stop the clock of a frame that is unwound, for now. */
static inline void time_ends(struct thread *t, struct frame *frame, u64 now)
{
#ifdef PROFILE
	profile_left(t, frame, now);
#else
	(void)t;
	(void)now;
	instance_freed(frame);
#endif
}

/* A call or a return at `slot`, although deeper frames seem to be open: they were left by longjmp
 * or an exception, or wait on another stack. It is impossible to tell which, so those that may come
 * back are put aside. Only this much is certain: a frame with the same slot is dead if something
 * else is stored there now. The number of frames is recorded in the trace. 0 if there is no room
 * for them. */
REGISTERS int frames_left(struct thread *t, ulong slot, const ulong *place)
{
	struct frame *frame = t->top;
	u64 now = ticks();

	while (frame > t->bottom && frame[-1].slot <= slot) {
		int dead = frame[-1].slot == slot;

		if (dead && is_handler(place))
			break; /* a tail call */
		time_ends(t, frame - 1, now);
		if (!dead && !keep(t, frame - 1))
			return 0;
		frame--;
	}
	left(t, frame, now);
	return 1;
}

/* Make the frame of `slot`, which is not the innermost, the innermost, unwinding those above. 0 if
 * it is not on this thread's ret_stack. */
REGISTERS int frame_surfaced(struct thread *t, ulong slot, u64 now)
{
	struct frame *found = t->top, *frame, moved;

	while (found > t->bottom && found[-1].slot != slot)
		found--;
	if (found == t->bottom)
		return 0;
	for (frame = t->top; frame > found; frame--) {
		time_ends(t, frame - 1, now);
		if (!keep(t, frame - 1))
			break;
	}
	left(t, frame, now);
	/* Without room to keep the others, swap them with it. */
	for (; found < t->top; found++) {
		copy(&moved, found);
		copy(found, found - 1);
		copy(found - 1, &moved);
	}
	return 1;
}

#ifdef RETURNS_HIGHER
/* The slot of the frame that returned, of any thread. If none fits, `slot` itself. */
REGISTERS ulong slot_below(ulong slot)
{
	struct thread *t;
	struct frame *frame;
	ulong found = 0, below = 0;

	for (t = process.threads; t; t = t->next)
		for (frame = t->top; frame-- > t->low;) {
			if (frame->slot > found && returned_from(frame, slot))
				found = frame->slot;
			if (frame->slot > below && slot - frame->slot < 1ul << 16)
				below = frame->slot;
		}
	return found ?: below ?: slot;
}
#endif
