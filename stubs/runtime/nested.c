// SPDX-License-Identifier: MIT
/* A handler that interrupts the tracer's own work. It is not traced, as ftrace does not trace in an
 * NMI: the frames being worked on stay as they are until the work continues, or is known never to.
 *
 * That it was left, by siglongjmp, cannot be told from where the next call comes: a handler's stack may
 * be above the one it interrupted, and arbitrarily close. So a handler that makes many calls meanwhile
 * gets another struct thread, and leaves the interrupted one alone:
 *
 *     it was a handler, which returns:  the work's end takes the thread back (end())
 *     the work was left:                the return of a frame from before it does (thread_of_return())
 */
#include "threads.h"

#define MANY 256	/* consecutive calls: then it is a handler's work */
#define GIVEN_UP (1u << 16)	/* ... so many that, lacking a stand-in, it must have been left */

static void current(struct thread *t)
{
	struct known *known = known_of(t->tp);

	if (known && known->tp == t->tp)
		known->thread = t;
}

/* The thread that records a call at `slot` in place of `t`. NULL: none. */
REGISTERS struct thread *interrupted(struct thread *t, ulong slot)
{
	struct thread *other;

	if (slot == t->busy) /* two calls in progress never share a place */
		return t;
	if (++t->nested < MANY)
		return 0;
	other = t->spare ?: thread_made(t->tp);
	if (!other)
		return t->nested < GIVEN_UP ? 0 : t;
	t->spare = other;
	other->tid = t->tid;
	other->number = t->number;
	other->under = t->under + (u32)(t->top - t->bottom);
	other->busy = other->nested = 0;
	other->full = t->full;
	other->elsewhere = t->elsewhere;
#ifdef REGS
	other->overrun = t->overrun;
	other->missed = t->missed;
#endif
#ifndef PROFILE
	chunk_left(other);
#endif
	other->account = t->account;
	other->serial = t->serial;
#ifdef TOGETHER
	streams_handed(other, t);
#endif
	other->from = t;
	t->busy = HANDED_ON;
	barrier();
	current(other);
	return other;
}

/* The thread continues where it was interrupted; frames that its stand-in still has open were left.
 * */
REGISTERS void taken_back(struct thread *t)
{
	struct thread *other = t->spare;

	if (other->busy == HANDED_ON)
		taken_back(other);
	other->busy = CLOSING;
	if (other->top > other->bottom)
		frames_left(other, ~0ul, 0);
	other->from = 0;
	t->number = other->number;
	t->full = other->full;
#ifndef PROFILE
	t->pos = t->end = 0; /* it may be storing to the chunk, which stays its own until it has another */
	chunk_left(other);
#endif
	t->elsewhere = other->elsewhere;
#ifdef REGS
	t->overrun = other->overrun;
	t->missed = other->missed;
#endif
	t->account = other->account;
	t->serial = other->serial;
#ifdef TOGETHER
	streams_handed(t, other);
#endif
	t->busy = 0;
	barrier();
	current(t);
	other->busy = 0;
}

static int has_frame(const struct thread *t, ulong slot)
{
	const struct frame *frame = t->top;

	while (frame > t->bottom && frame[-1].slot != slot)
		frame--;
	return frame > t->bottom;
}

/* The owner of the frame that returned: whatever had interrupted the tracer above it has ended,
 * too. */
REGISTERS struct thread *thread_of_return(struct thread *t, ulong slot)
{
	struct thread *from;

	if (!has_frame(t, slot))
		for (from = t->from; from; from = from->from)
			if (has_frame(from, slot)) {
				taken_back(from);
				return from;
			}
	return t;
}
