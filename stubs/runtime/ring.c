// SPDX-License-Identifier: MIT
/* A ring: when all chunks of a file are used, those that were handed out first are used again.
 *
 *     | chunk | chunk | chunk | chunk | chunk |
 *               ^ held          ^ taken next: the oldest, if no thread holds it
 *
 * A thread holds the chunk that it stores to, and gives it up when it has its next one. Nobody can tell
 * when a thread has finished a store that it was interrupted in, so no other takes a chunk that is held;
 * unless its holder has ended. Where others hold all the rest, a thread begins its own anew.
 *
 * Handing out is a number that counts up, and a compare and exchange of `held`: whoever is interrupted
 * or killed anywhere here leaves at most one chunk empty, which its thread finds again. Whoever slept
 * with a number until all others had their turn takes none by it: what is there may be the newest. */
#include "text.h"
#include "threads.h"
#ifdef PROBES
#include "probes.h"
#endif
#ifdef WATCH
#include "watch.h"
#endif

#define ESRCH 3
#define ASKED 4 /* holders that may have ended, per chunk handed out */

/* The number of chunks: all that the file has room for, or the disk had. */
static u32 places_of(const struct trace_header *header)
{
	u64 end = header->flags & TRACE_NO_ROOM ? (u64)header->grown * TRACE_UNIT : header->accounts;

	return end < header->header_size ? 0 : (u32)((end - header->header_size) >> CHUNK_SHIFT);
}

/* Whether the thread that holds a chunk has ended. Those of a forked child have ids of its own, and a
 * sandbox may not let us ask. */
static int has_ended(const struct trace_header *header, u32 tid)
{
	return !(ftpatch_config.clock & GIVES_UP_CALLS) && !header->children && header->pid == process.pid &&
	       syscall6(SYS_tgkill, process.pid, tid, 0, 0, 0, 0) == -ESRCH;
}

/* Whether a thread may take a chunk that is held by itself: one that it was interrupted in taking, and
 * did not come back to. A stand-in cannot know of the thread that it stands in for. */
static int is_left(const struct thread *t, const struct trace_chunk *chunk)
{
	return !t->from && chunk != t->chunk;
}

/* Whether the number `at` is so old that a later one was for the same chunk. */
static int is_late(struct trace_header *header, u64 at, u32 places)
{
	/* An addition, since no load of 8 bytes is one access on i386. */
	u64 taken = __atomic_fetch_add(&header->taken, 0, __ATOMIC_SEQ_CST);

	return taken > at + ((u64)places << CHUNK_SHIFT);
}

/* The oldest chunk that nobody holds, for this thread; its own if others hold all the rest. NULL if it
 * has none. */
REGISTERS struct trace_chunk *ring_chunk(struct thread *t, struct trace_header *header)
{
	u32 places = places_of(header), tries, ask = ASKED;
	ulong own = (ulong)t->chunk - (ulong)header;

	/* One more than there are: who finds none begins at another place the next time. */
	for (tries = 0; tries <= places && places; tries++, places = places_of(header)) {
		u64 at = __atomic_fetch_add(&header->taken, CHUNK, __ATOMIC_RELAXED);
		u64 start = header->header_size + ((u64)((u32)(at >> CHUNK_SHIFT) % places) << CHUNK_SHIFT);
		struct trace_chunk *chunk = (struct trace_chunk *)((char *)header + start);
		u32 held;

		if (!file_grown(header, start + CHUNK))
			continue; /* what there is, is all */
		held = __atomic_load_n(&chunk->held, __ATOMIC_ACQUIRE);
		if (is_late(header, at, places))
			continue;
		if (held == t->tid ? !is_left(t, chunk) : held && !(ask && ask-- && has_ended(header, held)))
			continue;
		if (!__atomic_compare_exchange_n(&chunk->held, &held, t->tid, 0, __ATOMIC_SEQ_CST,
						 __ATOMIC_RELAXED))
			continue;
		if (!is_late(header, at, places))
			return chunk;
		__atomic_store_n(&chunk->held, held, __ATOMIC_RELEASE);
	}
	return own < header->size ? t->chunk : 0;
}

/* Words of an event, of which `n` come before the calls that led to it. */
#if defined(PROBES) || defined(WATCH)
static u32 with_calls(const u64 *at, const u64 *end, u32 n, u32 registers)
{
	if (end - at <= (s64)n || (u32)at[n] > CALLS_WORDS)
		return 0;
	return n + 1 + registers + (u32)at[n];
}
#endif

#ifdef WATCH
static u32 words_of_access(const u64 *at, const u64 *end)
{
	u32 number = (u32)(*at >> TYPE_BITS) & ((1u << FUNC_BITS) - 1);

	if ((*at & ((1 << TYPE_BITS) - 1)) != EVENT_ACCESS || number >= WATCHES)
		return 0;
	return laid_rule(number)->flags & WATCH_CALLS ? with_calls(at, end, 5, CALLS_REGISTERS) : 5;
}
#endif

#ifdef PROBES
static u32 words_of_hit(const u64 *at, const u64 *end)
{
	u32 type = *at & ((1 << TYPE_BITS) - 1), n;
	u32 number = (u32)(*at >> TYPE_BITS) & ((1u << FUNC_BITS) - 1);
	const struct probe *probe;

	if ((type != EVENT_HIT && type != EVENT_RETURNED) || number >= probe_table()->probe_count)
		return 0;
	probe = probe_at(number);
	n = (type == EVENT_RETURNED ? 3 : 1) + probe->words;
	if (!(probe->flags & PROBE_CALLS))
		return n;
	return with_calls(at, end, n, calls_step(probe)->what ? CALLS_TOP : CALLS_REGISTERS);
}
#endif

#if defined(TOGETHER) || (!defined(PROBES) && !defined(WATCH))
static u32 words_of_call(const u64 *at)
{
	static const u8 words[1 << TYPE_BITS] = {
		[EVENT_ENTRY] = 1, [EVENT_EXIT] = 1, [EVENT_ENTRY_FROM] = 2, [EVENT_ENTRY_ARGS] = 7,
		[EVENT_EXIT_VALUE] = 2, [EVENT_UNWOUND] = 1,
	};

	return words[*at & ((1 << TYPE_BITS) - 1)];
}
#endif

/* Words of the event at `at`; 0 for what is none. */
static u32 words_of(const struct trace_chunk *chunk, const u64 *at, const u64 *end)
{
	(void)chunk;
	(void)end;
	if ((*at & ((1 << TYPE_BITS) - 1)) == EVENT_TIME)
		return 2;
#ifdef TOGETHER
	if (chunk->held == KIND_CALLS)
		return words_of_call(at);
#ifdef WATCH
	if (chunk->held == KIND_ACCESSES)
		return words_of_access(at, end);
#endif
	return words_of_hit(at, end);
#elif defined(WATCH)
	return words_of_access(at, end);
#elif defined(PROBES)
	return words_of_hit(at, end);
#else
	return words_of_call(at);
#endif
}

/* Events in a chunk. */
REGISTERS u32 events_of(const struct trace_chunk *chunk)
{
	const u64 *at = (const u64 *)(chunk + 1), *end = (const u64 *)((const char *)chunk + CHUNK);
	u32 words, n = 0;

	for (; at < end && *at && (words = words_of(chunk, at, end)) != 0; at += words)
		n += (*at & ((1 << TYPE_BITS) - 1)) != EVENT_TIME;
	return n;
}

/* Prepare a chunk that ring_chunk() gave to this thread: count the events that go, and clear it. */
REGISTERS void ring_cleared(struct thread *t, struct trace_header *header, struct trace_chunk *chunk)
{
	struct trace_account *accounts = (struct trace_account *)((char *)header + header->accounts);
	volatile u64 *at = (volatile u64 *)(chunk + 1), *end = (volatile u64 *)((char *)chunk + CHUNK);
	struct trace_account *account = header == process.header ? account_of(t) : 0;
	u32 whose = chunk->account, n;

	if (chunk == t->chunk)
		t->pos = t->end = 0; /* no handler may store there */
	if (chunk->magic == CHUNK_MAGIC) {
		n = events_of(chunk);
		chunk->magic = CHUNK_CLEARED;
		/* Before anything else of it, for who reads meanwhile. */
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		__atomic_fetch_add(&header->overwritten, n, __ATOMIC_RELAXED);
		if (whose)
			__atomic_fetch_add(&accounts[whose - 1].overwritten, n, __ATOMIC_RELAXED);
	}
	for (; at < end && chunk->magic; at++)
		*at = 0;
	chunk->thread = serial_of(t);
	chunk->account = account ? (u16)(account - accounts + 1) : 0;
}

/* Let others have the chunk that a thread holds. */
REGISTERS void chunk_left(struct thread *t)
{
	struct trace_chunk *chunk = t->chunk;

	t->pos = t->end = 0;
	t->chunk = 0;
	barrier();
	if (chunk && chunk->held == t->tid)
		__atomic_store_n(&chunk->held, 0, __ATOMIC_RELEASE);
}
