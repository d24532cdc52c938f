/* SPDX-License-Identifier: MIT */
/* Finding the calling thread, and room in the file for it. */
#ifndef FTPATCH_THREADS_H
#define FTPATCH_THREADS_H

#include "runtime.h"

/* Files of events are rotated; those of sums are not, nor are histograms. */
#if !defined(PROFILE) && !defined(USER) && !defined(NOP)
#define ROTATING
#endif

/* The longest event, that of an r probe; a watch's is shorter (words). */
#if defined(PROBES) || defined(WATCH)
#define MAX_EVENT (3 + 64 + 1 + CALLS_REGISTERS + CALLS_WORDS)
#else
#define MAX_EVENT (3 + 64)
#endif

#define RING_WAIT 1024 /* events of a thread until it looks again for a chunk, where there may be one by then */

/* threads.c */
REGISTERS struct known *known_of(ulong tp);
REGISTERS struct thread *thread_made(ulong tp);
void ids_found(void);
REGISTERS struct thread *thread_found(ulong tp);
REGISTERS void thread_renewed(struct thread *t, u32 tid);
REGISTERS int chunk_taken(struct thread *t, u64 now);

/* ring.c */
REGISTERS struct trace_chunk *ring_chunk(struct thread *t, struct trace_header *header);
REGISTERS void ring_cleared(struct thread *t, struct trace_header *header, struct trace_chunk *chunk);
REGISTERS void chunk_left(struct thread *t);
REGISTERS u32 events_of(const struct trace_chunk *chunk);

/* rotate.c */
#ifdef ROTATING
REGISTERS int file_rotated(struct thread *t);
#else
#define file_rotated(t) 0
#endif

/* accounts.c */
REGISTERS struct trace_account *account_of(struct thread *t);
REGISTERS void account_lost(struct thread *t, enum trace_lost kind);
#ifdef TOGETHER
REGISTERS struct thread *stream_made(struct thread *t, enum trace_kind kind);
REGISTERS void streams_handed(struct thread *to, const struct thread *from);
#endif

/* file.c */
REGISTERS long populate(char *at, ulong size);
REGISTERS int file_grown(struct trace_header *header, u64 end);
/* nested.c */
/* Values of `busy` besides slots: */
#define HANDED_ON 1 /* another stands in for the thread */
#define CLOSING 2   /* unwinding the frames that a stand-in left open */
#define RENEWED 3   /* another thread has the thread pointer now */
REGISTERS struct thread *interrupted(struct thread *t, ulong slot);
REGISTERS void taken_back(struct thread *t);
REGISTERS struct thread *thread_of_return(struct thread *t, ulong slot);

/* frames.c */
REGISTERS struct frame *frame_elsewhere(ulong slot);
REGISTERS void frames_kept(struct thread *t);
REGISTERS int frames_left(struct thread *t, ulong slot, const ulong *place);
REGISTERS int frame_surfaced(struct thread *t, ulong slot, u64 now);
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
	/* Stacks are pages apart, and a thread pointer is at the end of one. */
	return &process.known->slot[(tp >> 12 ^ tp >> 6) & (THREADS - 1)];
}

#define linked(type, at) ((const type *)(ulong)((at) + process.bias))

/* An event is lost: of a thread, 0: unknown. A user's functions are told of calls (ftrace_regs.h). */
static inline void lost(struct thread *t, enum trace_lost kind)
{
#ifdef REGS
	if (t)
		*(kind == LOST_DEPTH ? &t->overrun : &t->missed) += 1;
	else
		__atomic_fetch_add(&process.early, 1, __ATOMIC_RELAXED);
#else
	struct trace_header *header = process.header;

	if (!header)
		return;
	__atomic_fetch_add(&header->lost[kind], 1, __ATOMIC_RELAXED);
	if (t)
		account_lost(t, kind);
#endif
}

/* Whether recording is switched off, from outside: nothing new is begun. */
static inline int is_off(void)
{
	struct trace_header *header = process.header;

	return header && *(volatile u32 *)&header->off & OFF_NOW;
}

/* The thread that a struct stands for: for itself, or in part (streams). */
static inline struct thread *whole_of(struct thread *t)
{
#ifdef TOGETHER
	return t->whole ?: t;
#else
	return t;
#endif
}

/* A thread's own number, as ids are used again. */
static inline u16 serial_of(struct thread *t)
{
	t = whole_of(t);
	if (!t->serial)
		t->serial = __atomic_add_fetch(&process.serials, 1, __ATOMIC_RELAXED);
	return (u16)t->serial;
}

static inline u32 id_at(ulong tp)
{
	return *(volatile u32 *)(tp + (long)process.tid_offset);
}

/* The calling thread, NULL if there is no room for it or it is not ready. */
static inline struct thread *current_thread(void)
{
	struct thread *t;
	struct known *known;
	ulong tp;

	if (unlikely(!process.ready))
		return 0;
	tp = thread_pointer();
	known = known_at(tp);
	t = likely(known->tp == tp && tp) ? known->thread : 0;
	if (unlikely(!t))
		t = thread_found(tp);
	if (unlikely(!t))
		return 0;
	/* Another thread got the stack, and with it the thread pointer, of one that ended. */
	if (process.tid_offset && unlikely(t->tid != id_at(tp)))
		thread_renewed(t, id_at(tp));
	return t;
}

#ifdef RETURNS_HIGHER
static inline int returned_from(const struct frame *frame, ulong slot)
{
	return slot - frame->slot < POPPED &&
	       *(volatile ulong *)frame->slot == (ulong)return_to_handler;
}

/* The slot of the frame that returned, given that the stack pointer is now right after `slot`.
 *
 *     | return_to_handler | n bytes, taken by `ret $n` | ...
 *       ^ its slot                         slot + 4 -> ^
 *
 * An unwound frame may have had a slot in those bytes, or below the one that returned: that is the
 * highest one that still holds return_to_handler. */
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

/* Where a thread's events of a kind are stored; NULL if there is no room. */
#ifdef TOGETHER
static inline struct thread *stream(struct thread *t, enum trace_kind kind)
{
	struct thread *at = t->streams[kind - 1];

	return likely(at && at->tid == t->tid) ? at : stream_made(t, kind);
}
#else
#define stream(t, kind) (t)
#endif

/* The tracer handles the call of this slot, and must not be traced itself. */
static inline void begin(struct thread *t, ulong slot)
{
	t->busy = slot;
	t->nested = 0;
	barrier();
}

static inline void end(struct thread *t, ulong slot)
{
	barrier();
	if (likely(t->busy == slot))
		t->busy = 0;
	else if (t->busy == HANDED_ON)
		taken_back(t);
}

/* The thread a traced call belongs to, with the tracer marked busy. NULL if the call is not
 * recorded. */
static inline struct thread *begun(ulong slot)
{
	struct thread *t = current_thread();

	if (unlikely(!t)) {
		if (!process.ready)
			__atomic_fetch_add(&process.early, 1, __ATOMIC_RELAXED);
		return 0;
	}
	if (unlikely(t->busy)) {
		struct thread *own = t;

		t = interrupted(t, slot);
		if (!t) {
			lost(own, LOST_NESTED);
			return 0;
		}
	}
	begin(t, slot);
	return t;
}

/* Whether the `words` words at `at` are in the thread's chunk. */
static inline int has_room(const struct thread *t, const u64 *at, u32 words)
{
	return (ulong)t->end - (ulong)(at + words) < CHUNK;
}

/* An event of `words` words is about to be stored at `at`. */
static inline void storing(struct thread *t, u64 *at, u32 words)
{
	if (words > 1 && t->stored < at + words)
		t->stored = at + words;
	barrier();
}

/* End the chunk at `pos`, which an event was stored before, if anything is behind it: a handler that
 * jumped out while a longer one was being stored may have left the rest of that there.
 *
 *     | event | 0 | what a longer one left |
 *               ^ pos                      ^ stored
 *
 * Without need, nothing is stored there. If a handler forks in the middle of an event, the child goes
 * on with that as well, and in what is still its parent's file: that may have its next event by then.
 * The event itself is the same in both, and the child's `stored` is in a file of its own. */
static inline void end_chunk(const struct thread *t, u64 *pos)
{
	if (unlikely((ulong)t->stored - (ulong)pos - 1 < CHUNK))
		*pos = 0;
	barrier();
}

/* Room for an event of `words` words at time `now`, NULL if there is none. */
static inline u64 *event_at(struct thread *t, u64 now, u32 words)
{
	u64 *at = t->pos;

	/* A handler that jumped out or forked in the middle of this may have left any position
	 * here. */
	if (unlikely(!has_room(t, at, words + 2) || (now - t->base) >> TICKS_BITS)) {
		if (!chunk_taken(t, now))
			return 0;
		at = t->pos;
	}
	storing(t, at, words);
	return at;
}

/* Whether the place is still valid: not if a signal handler intervened, and wrote there or to a new
 * file. */
static inline int place_holds(const struct thread *t, const u64 *at)
{
	barrier();
	return likely(t->pos == at);
}

static inline u64 event(struct thread *t, u64 now, u64 func, enum trace_event type)
{
	return (now - t->base) << TICKS_SHIFT | func | type;
}

/* Store an event of `words` words, `first` last, since readers rely on it. */
static inline void event_put(struct thread *t, u64 *at, u32 words, u64 first)
{
	end_chunk(t, at + words);
	*at = first;
	t->pos = at + words;
}

#endif
