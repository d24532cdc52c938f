// SPDX-License-Identifier: MIT
/* Finding the calling thread, and room for it in the file. */
#include "threads.h"

static inline u32 own_id(void)
{
	return (u32)syscall6(SYS_gettid, 0, 0, 0, 0, 0, 0);
}

/* libc keeps the thread's id near the thread pointer, where the kernel clears it when the thread
 * ends, if it keeps one at all. */
static int tid_offset(ulong tp, u32 tid)
{
	int at;

	for (at = TID_FIRST; at != TID_LAST; at += TID_STEP)
		if (*(u32 *)(tp + (long)at) == tid && is_tid(tp + (long)at))
			return at;
	return 0;
}

/* The same for the calling thread, whichever it is: of a library whose first call may come from any. */
void ids_found(void)
{
	if (process.ready && !process.tid_offset)
		process.tid_offset = tid_offset(thread_pointer(), own_id());
}

/* A thread on the process's own stack has the process's id. */
static u32 likely_id(void)
{
	ulong here = (ulong)__builtin_frame_address(0);

	return process.stack - here < MAIN_STACK ? process.pid : own_id();
}

/* A thread pointer's entry in the table, or the one to take: whoever finds it empty fills it in.
 * NULL if all are taken. */
REGISTERS struct known *known_of(ulong tp)
{
	struct known *first = process.known->slot, *known;
	u32 i, at = known_at(tp) - first;

	for (i = 0; i < THREADS; i++) {
		ulong none = 0;

		known = &first[(at + i) & (THREADS - 1)];
		if (known->tp == tp || __atomic_compare_exchange_n(&known->tp, &none, tp, 0,
								   __ATOMIC_ACQ_REL,
								   __ATOMIC_RELAXED))
			return known;
	}
	return 0;
}

/* One more struct thread, NULL if there is none. */
REGISTERS struct thread *thread_made(ulong tp)
{
	struct thread *t;
	u32 i;

	if (process.count >= process.most)
		return 0;
	i = __atomic_fetch_add(&process.count, 1, __ATOMIC_RELAXED);
	if (i >= process.most)
		return 0;
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
	return t;
}

#ifdef TOGETHER
/* A stream that is not there yet, or of a thread that had this one's pointer, or forked. */
REGISTERS struct thread *stream_made(struct thread *t, enum trace_kind kind)
{
	struct thread *at = t->streams[kind - 1];

	if (!at) {
		at = thread_made(t->tp);
		if (!at)
			return 0;
		at->tp = 0; /* no thread's */
		at->kind = kind;
		at->whole = t;
		barrier();
		t->streams[kind - 1] = at;
	}
	if (at->tid != t->tid) {
		at->pos = at->end = 0;
		at->number = at->full = at->elsewhere = 0;
		barrier();
		at->tid = t->tid;
	}
	return at;
}

/* One thread stands in for another, or does so no more: its chunks' numbers go on. */
REGISTERS void streams_handed(struct thread *to, const struct thread *from)
{
	struct thread *at;
	u32 kind;

	for (kind = KIND_CALLS + 1; kind < KINDS; kind++) {
		const struct thread *had = from->streams[kind - 1];

		if (!had || had->tid != to->tid || !(at = stream_made(to, kind)))
			continue;
		at->pos = at->end = 0;
		at->number = had->number;
		at->full = had->full;
		at->elsewhere = had->elsewhere;
	}
}
#endif

/* A thread seen for the first time, or that is not where it should be in the table. A signal
 * handler may interrupt this anywhere, and may not return: it does all of it again, and whoever
 * comes last uses the result. */
REGISTERS struct thread *thread_found(ulong tp)
{
	struct known_threads *all = process.known;
	struct thread *t = 0, *other = 0;
	struct known *known;

	if (!all->here) {
		trace_forked();
		if (!all->here) {
			__atomic_fetch_add(&process.early, 1, __ATOMIC_RELAXED);
			return 0;
		}
	}
	if (!tp) {
		lost(0, LOST_EARLY);
		return 0;
	}
	if (!process.count && !process.tid_offset)
		process.tid_offset = tid_offset(tp, likely_id());
	known = known_of(tp);
	if (known && known->thread)
		return known->thread;
	t = known ? thread_made(tp) : 0;
	if (!t) {
		lost(0, LOST_THREAD);
		return 0;
	}
	if (!__atomic_compare_exchange_n(&known->thread, &other, t, 0, __ATOMIC_ACQ_REL,
					 __ATOMIC_RELAXED)) {
		t->tp = 0;
		return other;
	}
	if (process.header)
		__atomic_fetch_add(&process.header->threads, 1, __ATOMIC_RELAXED);
	return t;
}

/* The next chunk of a file, which may have to grow for it; NULL if there is none. */
static struct trace_chunk *chunk_of(struct thread *t, struct trace_header *header)
{
	u64 at, end;

	if (header->flags & TRACE_RING)
		return ring_chunk(t, header);
	at = __atomic_fetch_add(&header->taken, header->chunk_size, __ATOMIC_RELAXED);
	end = header->header_size + at + header->chunk_size;
	if (end > (header->accounts ?: header->size) || !file_grown(header, end))
		return 0;
	return (struct trace_chunk *)((char *)header + (end - header->chunk_size));
}

static struct trace_chunk *chunk_elsewhere(struct thread *t)
{
	struct trace_header *header = process.overflow;
	struct trace_chunk *chunk = header && header != process.header ? chunk_of(t, header) : 0;

	if (chunk && !__atomic_exchange_n(&process.overflowing, 1, __ATOMIC_RELAXED))
		__atomic_fetch_add(&header->children, 1, __ATOMIC_RELAXED);
	return chunk;
}

/* Whether this process still records in a file: not if a handler forked, or the file was truncated. If
 * another thread began the next one meanwhile, this one is still good for a chunk. */
static inline int is_recorded_in(const struct trace_header *header, u32 pid)
{
	return process.pid == pid && (process.header == header || header->flags & TRACE_ROTATES);
}

/* A time that an event can hold, or a new chunk. 0 if there is none. */
REGISTERS int chunk_taken(struct thread *t, u64 now)
{
	struct trace_header *header, *holder;
	struct trace_chunk *chunk, *held;
	u64 *last = t->pos;
	u32 number, next, open, tid, pid, elsewhere, ring;

	whole_of(t)->waits = 0; /* a handler that interrupted that may not have returned */
	whole_of(t)->stuck = 0; /* not in the file that comes now */
	barrier();
	header = process.header;
	if (!header)
		return 0;
	if (t->full) {
		if (header->flags & (TRACE_RING | TRACE_ROTATES))
			t->full--;
		return 0;
	}
	/* The last one was too long ago. Where little is left, a new chunk will do, too. */
	if (last && has_room(t, last, 2 + MAX_EVENT + 2)) {
		storing(t, last, 2);
		last[1] = now;
		end_chunk(t, last + 2);
		last[0] = EVENT_TIME;
		if (place_holds(t, last))
			t->pos = last + 2;
		t->base = now;
		return 1;
	}
	pid = process.pid;
	tid = t->tid;
	/* Chunks are numbered in the order they are taken. A handler may take some in between: then ours stays
	 * empty, as it does if the handler does not return. */
	do {
		number = t->number;
		open = t->under + (u32)(t->top - t->bottom);
		barrier();
		while (!(chunk = chunk_of(t, header)) && file_rotated(t) && process.pid == pid &&
		       process.header)
			header = process.header;
		chunk = chunk ?: chunk_elsewhere(t);
		if (!is_recorded_in(header, pid))
			return 0;
		if (!chunk) {
			t->full = header->flags & (TRACE_RING | TRACE_ROTATES) ? RING_WAIT : 1;
			t->pos = t->end = 0;
			return 0;
		}
		/* Of a ring, one that stays empty is found again by ring_chunk(). */
		next = number;
	} while (!__atomic_compare_exchange_n(&t->number, &next, number + 1, 0, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED));
	elsewhere = (u64)((char *)chunk - (char *)header) >= header->size;
	if (elsewhere && !t->elsewhere) { /* another file's chunks have numbers of their own */
		number = 0;
		t->number = 1;
	}
	t->elsewhere = elsewhere;
	holder = elsewhere ? process.overflow : header;
	ring = holder && holder->flags & TRACE_RING;
	if (ring)
		ring_cleared(t, holder, chunk);
#ifdef ROTATING
	else if (header->flags & TRACE_ROTATES)
		chunk->thread = serial_of(t);
#endif
	barrier();
	chunk->tid = tid;
	chunk->base = now;
	chunk->number = number;
	chunk->open = open;
#ifdef TOGETHER
	chunk->held = t->kind; /* no ring */
#endif
	barrier();
	/* Signals tend to arrive here, after the page fault. If a handler forked, this is the
	 * parent's chunk, and the child needs one of its own. */
	if (!is_recorded_in(header, pid))
		return 0;
	__atomic_store_n(&chunk->magic, CHUNK_MAGIC, __ATOMIC_RELEASE);
	held = t->chunk;
	t->chunk = ring ? chunk : 0;
	t->base = now;
	t->stored = 0;
	t->pos = (u64 *)(chunk + 1);
	t->end = (u64 *)((char *)chunk + header->chunk_size);
	if (held && held != chunk) {
		barrier();
		__atomic_store_n(&held->held, 0, __ATOMIC_RELEASE);
	}
	barrier();
	if (likely(!whole_of(t)->stuck))
		return 1;
	/* It took so long that its file was left without it, and counted: the chunk stays empty. */
	t->pos = t->end = 0;
	return chunk_taken(t, now);
}

/* Another thread has this one's thread pointer, so this one is gone. */
REGISTERS void thread_renewed(struct thread *t, u32 tid)
{
	if (!process.wiped && (u32)syscall6(SYS_getpid, 0, 0, 0, 0, 0, 0) != process.pid) {
		trace_forked();
		return;
	}
	/* A handler that interrupts this is not traced, and does none of it. */
	if (t->busy == RENEWED)
		return;
	t->busy = RENEWED;
	barrier();
	if (t->tid != tid) { /* unless a handler just did it all */
		frames_kept(t);
		chunk_left(t);
		t->account = 0;
		t->serial = 0;
		t->nested = t->number = t->full = t->under = t->elsewhere = 0;
#ifdef REGS
		t->overrun = t->missed = 0;
#endif
		t->from = 0;
		if (process.header)
			__atomic_fetch_add(&process.header->threads, 1, __ATOMIC_RELAXED);
		barrier();
		t->tid = tid;
	}
	barrier();
	t->busy = 0;
}
