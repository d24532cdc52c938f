/* Finding the calling thread, and room in the file for it. */
#ifndef FTPATCH_THREADS_H
#define FTPATCH_THREADS_H

#include "runtime.h"

REGISTERS struct thread *thread_found(ulong tp);
REGISTERS void thread_renewed(struct thread *t, u32 tid);
REGISTERS int chunk_taken(struct thread *t, u64 now);
REGISTERS struct frame *frame_elsewhere(ulong slot);
REGISTERS int frames_left(struct thread *t, ulong slot, ulong parent);
REGISTERS int frame_surfaced(struct thread *t, ulong slot);
REGISTERS ulong slot_below(ulong slot);

#ifndef TID_CHECKED
static inline int is_tid(ulong at)
{
	(void)at;
	return 1;
}
#endif

static inline struct known *known_at(ulong tp)
{
	/* Stacks are pages apart, and a thread pointer lies at the end of one. */
	return &process.known->slot[(tp >> 12 ^ tp >> 6) & (THREADS - 1)];
}

static inline void lost(enum trace_lost kind)
{
	struct trace_header *header = process.header;

	if (header)
		__atomic_fetch_add(&header->lost[kind], 1, __ATOMIC_RELAXED);
}

static inline u32 id_at(ulong tp)
{
	return *(volatile u32 *)(tp + (long)process.tid_offset);
}

/* The calling thread, NULL where it has no room or is not ready. */
static inline struct thread *current_thread(void)
{
	struct thread *t;
	struct known *known;
	ulong tp;

	if (unlikely(!process.ready))
		return 0;
	tp = thread_pointer();
	known = known_at(tp);
	if (likely(known->tp == tp && tp))
		t = known->thread;
	else
		t = thread_found(tp);
	if (unlikely(!t))
		return 0;
	/* Another thread has got the stack, and with it the thread pointer, of one that ended. */
	if (process.tid_offset && unlikely(t->tid != id_at(tp)))
		thread_renewed(t, id_at(tp));
	return t;
}

/* A signal handler that interrupts the tracer itself is not traced, as ftrace does not trace in an
 * NMI. If a handler leaves by siglongjmp, the tracer never goes on; then the next call comes from
 * higher up the stack than the one it was working on. */
static inline int is_nested(struct thread *t, ulong slot)
{
	if (likely(!t->busy))
		return 0;
	if ((slot >= t->busy && slot - t->busy < 1ul << 18) || t->nested > 1 << 16) {
		t->nested = 0;
		return 0;
	}
	t->nested++;
	return 1;
}

#ifdef RETURNS_HIGHER
static inline int returned_from(const struct frame *frame, ulong slot)
{
	return slot - frame->slot < POPPED &&
	       *(volatile ulong *)frame->slot == (ulong)return_to_handler;
}

/* The slot of the frame that returned, where the stack pointer is right behind `slot` now.
 *
 *     | return_to_handler | n bytes, taken by `ret $n` | ...
 *       ^ its slot                         slot + 4 -> ^
 *
 * A frame that was left may have had a slot in those bytes, or lower than the one that returned: that
 * is the highest which still holds return_to_handler. */
static inline ulong slot_of_return(struct thread *t, ulong slot)
{
	struct frame *top = t ? t->top : 0;

	if (likely(top && top > t->bottom &&
		   (top[-1].slot == slot ||
		    ((top - 1 == t->bottom || top[-2].slot > slot) && returned_from(top - 1, slot)))))
		return top[-1].slot;
	return slot_below(slot);
}
#else
static inline ulong slot_of_return(struct thread *t, ulong slot)
{
	(void)t;
	return slot;
}
#endif

/* Room for `words` words of an event at time `now`, NULL if there is none. */
static inline u64 *event_at(struct thread *t, u64 now, u32 words)
{
	/* A handler that left in the midst of this may have left any position here. */
	if (unlikely(t->pos + words + 2 > t->end || (now - t->base) >> TICKS_BITS)) {
		if (!chunk_taken(t, now))
			return 0;
	}
	return t->pos;
}

static inline u64 event(struct thread *t, u64 now, u64 func, enum trace_event type)
{
	return (now - t->base) << TICKS_SHIFT | func | type;
}

#endif
