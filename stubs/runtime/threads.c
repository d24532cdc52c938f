/* Finding the calling thread, and room in the file for it. */
#include "threads.h"

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

/* Another thread has the thread pointer of this one, which is gone. */
REGISTERS void thread_renewed(struct thread *t, u32 tid)
{
	if (!process.wiped && (u32)syscall6(SYS_getpid, 0, 0, 0, 0, 0, 0) != process.pid) {
		trace_forked();
		return;
	}
	frames_kept(t);
	t->pos = t->end = 0;
	t->busy = t->nested = t->number = t->full = 0;
	t->tid = tid;
	if (process.header)
		__atomic_fetch_add(&process.header->threads, 1, __ATOMIC_RELAXED);
}
