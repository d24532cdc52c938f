#include "threads.h"

#ifdef PROFILE
#include "profile.h"
#endif
#ifdef PROBES
#include "probes.h"
#else
#define instance_freed(frame) ((void)(frame))
#endif

static inline u32 own_id(void)
{
	return (u32)syscall6(SYS_gettid, 0, 0, 0, 0, 0, 0);
}

/* The thread's id stands in what libc keeps around the thread pointer, if libc keeps it: where the
 * kernel clears it when the thread ends. Whose stack is the process's own has the process's id. */
static int tid_offset(ulong tp)
{
	ulong here = (ulong)__builtin_frame_address(0);
	u32 tid = process.stack - here < MAIN_STACK ? process.pid : own_id();
	int at;

	for (at = TID_FIRST; at != TID_LAST; at += TID_STEP)
		if (*(u32 *)(tp + (long)at) == tid && is_tid(tp + (long)at))
			return at;
	return 0;
}

/* A thread that is seen for the first time, or lies elsewhere in the table than it should. */
REGISTERS struct thread *thread_found(ulong tp)
{
	struct known_threads *all = process.known;
	struct thread *t = 0;
	struct known *known;
	u32 i, at;

	if (!all->here) {
		trace_forked();
		if (!all->here) {
			__atomic_fetch_add(&process.early, 1, __ATOMIC_RELAXED);
			return 0;
		}
	}
	if (!tp) {
		lost(LOST_EARLY);
		return 0;
	}
	if (!process.count)
		process.tid_offset = tid_offset(tp);
	at = known_at(tp) - all->slot;
	for (i = 0; i < THREADS; i++) {
		ulong none = 0;

		known = &all->slot[(at + i) & (THREADS - 1)];
		if (known->tp == tp) {
			if (!known->thread) /* a handler, while it is put there; or no room for it */
				lost(process.count < process.most ? LOST_NESTED : LOST_THREAD);
			return known->thread;
		}
		if (!known->tp && __atomic_compare_exchange_n(&known->tp, &none, tp, 0,
							      __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			break;
	}
	if (i < THREADS)
		i = __atomic_fetch_add(&process.count, 1, __ATOMIC_RELAXED);
	if (i >= process.most) {
		lost(LOST_THREAD);
		return 0;
	}
	t = (struct thread *)(process.region + i * process.stride);
	t->tp = tp;
	t->low = (struct frame *)(t + 1);
	t->bottom = t->low + ASIDE;
	t->top = t->bottom;
	t->limit = t->bottom + ftpatch_config.depth;
	t->tid = process.tid_offset ? id_at(tp) : own_id();
	do
		t->next = process.threads;
	while (!__atomic_compare_exchange_n(&process.threads, &t->next, t, 0, __ATOMIC_ACQ_REL,
					    __ATOMIC_RELAXED));
	if (process.header)
		__atomic_fetch_add(&process.header->threads, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&known->thread, t, __ATOMIC_RELEASE);
	return t;
}

/* A time that an event can say, or a new chunk. 0 if there is none. */
REGISTERS int chunk_taken(struct thread *t, u64 now)
{
	struct trace_header *header = process.header;
	struct trace_chunk *chunk;
	u64 at, *last = t->pos;
	u32 number, open;

	if (!header || t->full)
		return 0;
	if (last && has_room(t, last, 16)) { /* it was too long ago */
		last[1] = now;
		barrier();
		last[0] = EVENT_TIME;
		if (place_holds(t, last))
			t->pos = last + 2;
		t->base = now;
		return 1;
	}
	at = __atomic_fetch_add(&header->taken, header->chunk_size, __ATOMIC_RELAXED);
	if (at + header->chunk_size > process.chunks_end) {
		t->full = 1;
		t->pos = t->end = 0;
		return 0;
	}
	chunk = (struct trace_chunk *)((char *)header + header->header_size + at);
	number = t->number;
	open = t->top - t->bottom;
	barrier();
	chunk->tid = t->tid;
	chunk->base = now;
	chunk->number = number;
	chunk->open = open;
	barrier();
	/* Signals like to come here, after the fault that brings the page. If a handler forked, the
	 * child has another file. */
	if (process.header != header)
		return 0;
	chunk->magic = CHUNK_MAGIC;
	t->base = now;
	t->number = number + 1;
	t->pos = (u64 *)(chunk + 1);
	t->end = (u64 *)((char *)chunk + header->chunk_size);
	return 1;
}

/* A frame whose return is awaited in any thread, for contexts move from one to another: the latest,
 * for others of that slot may have been left for good. NULL for none. */
REGISTERS struct frame *frame_elsewhere(ulong slot)
{
	struct thread *t;
	struct frame *frame, *latest = 0;

	for (t = process.threads; t; t = t->next)
		for (frame = t->top; frame-- > t->low;)
			if (frame->slot == slot && frame->ret != (ulong)return_to_handler &&
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

/* Keep a frame that was left, for it may come back. 0 if there is no room. */
static REGISTERS int keep(struct thread *t, const struct frame *gone)
{
	struct frame *frame, *free = 0;

	for (frame = t->low; frame < t->bottom; frame++) {
		if (frame->slot == gone->slot) {
			if (gone->ret == (ulong)return_to_handler)
				return 1; /* a tail call, and its caller is kept already */
			break; /* which was overwritten, and is not coming back */
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

/* The thread whose frames these were is gone. They need not be: a coroutine goes on in another. */
REGISTERS void thread_renewed(struct thread *t, u32 tid)
{
	struct frame *frame;

	if (!process.wiped && (u32)syscall6(SYS_getpid, 0, 0, 0, 0, 0, 0) != process.pid) {
		trace_forked();
		return;
	}
	for (frame = t->top; frame-- > t->bottom;) {
		instance_freed(frame);
		keep(t, frame);
	}
	t->top = t->bottom;
	t->pos = t->end = 0;
	t->busy = t->nested = t->number = t->full = 0;
	t->tid = tid;
	if (process.header)
		__atomic_fetch_add(&process.header->threads, 1, __ATOMIC_RELAXED);
}

/* The ret_stack ends at `frame` now, and the trace says so. */
static REGISTERS void left(struct thread *t, struct frame *frame, u64 now)
{
#if !defined(PROFILE) && !defined(USER) && !defined(PROBES)
	u64 n = 0, *at;
	struct frame *gone;

	for (gone = frame; gone < t->top; gone++)
		n += gone->func != 0; /* those of a fork's parent are not in this trace */
	at = n ? event_at(t, now, 1) : 0;
	if (at) {
		*at = event(t, now, n << TYPE_BITS, EVENT_LEFT);
		t->pos = at + 1;
	}
#else
	(void)now;
#endif
	t->top = frame;
}

/* The time of a frame that is left ends, for now. */
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

/* A call, or a return, at `slot` although deeper frames seem to be open: they were left by longjmp
 * or an exception, or wait on another stack. Which, cannot be told; so those that may come back are
 * put aside. Only one thing is certain: what had the same slot is dead, if something else stands in
 * it now. The number of frames goes into the trace. 0 if there is no room to put them. */
REGISTERS int frames_left(struct thread *t, ulong slot, ulong parent)
{
	struct frame *frame = t->top;
	u64 now = ticks();

	while (frame > t->bottom && frame[-1].slot <= slot) {
		int dead = frame[-1].slot == slot;

		if (dead && parent == (ulong)return_to_handler)
			break; /* a tail call */
		time_ends(t, frame - 1, now);
		if (!dead && !keep(t, frame - 1))
			return 0;
		frame--;
	}
	left(t, frame, now);
	return 1;
}

/* Make the frame of `slot`, which is not the innermost, the innermost: those above it were left. 0
 * where this thread's ret_stack has none. */
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
	/* Where there is no room to keep the others, they change places with it. */
	for (; found < t->top; found++) {
		copy(&moved, found);
		copy(found, found - 1);
		copy(found - 1, &moved);
	}
	return 1;
}

#ifdef RETURNS_HIGHER
/* The slot of whatever thread's frame that returned. Where none can be right, `slot` itself. */
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
