// SPDX-License-Identifier: MIT
/* Rotation: when the trace file is full, the process goes on in another one, and keeps some of those
 * before.
 *
 *     NAME      NAME.r1   NAME.r2   NAME.r3
 *     removed   full      full      is written: threads take their next chunks there
 *
 * A thread finishes its chunk in the file that it is in, and may take long for that. So files are mapped in
 * SLOTS of address space, which the next ones take the place of, and of which the header can always be
 * read. Threads that are still in a file before the last one are made to leave it: their chunk's end is
 * moved to where they are, which they find at their next event.
 *
 * One thread rotates, with all signals blocked, and others that find no chunk wait for it. So does who
 * finds that somebody has truncated the file that is written; the one that rotates sees that at the end. */
#ifndef NOP
#include "file.h"
#endif
#ifdef PROBES
#include "probes.h"
#endif
#ifdef WATCH
#include "watch.h"
#endif
#ifdef ROTATING

#define ESRCH 3
#define SIG_SETMASK 2
#define SLOTS 4
#define NAP 100000 /* nanoseconds */
#define NAPS 1000
#define ANONYMOUS (2 | 0x20 | MAP_NORESERVE_)
#define ANONYMOUS_FIXED (ANONYMOUS | 0x10)
#define BARRIER 8 /* MEMBARRIER_CMD_PRIVATE_EXPEDITED */
#define BARRIER_WANTED 16 /* _REGISTER_... */

static struct {
	ulong at; /* 0: not yet used */
	ulong room;
	struct trace_header *header; /* of the file there, 0: none */
	u32 is_kept; /* somebody who is stuck may have taken a chunk of it */
} slots[SLOTS];

/* A full file that has not been removed. */
struct kept {
	u32 number;
	struct trace_header *header; /* 0: nobody stores there any more, and ... */
	u64 events;                  /* ... so many are in it, or were removed before ... */
	u64 lost[LOST_KINDS];        /* ... or lost, and so many bytes */
	u64 cut;                     /* truncated */
};

#ifdef PROBES
static struct trace_probe *states;
#endif
static struct kept *kept; /* the oldest is kept[first], of MAX_ROTATE + SLOTS in a circle */
static u32 first, count;
static u32 number; /* of the file that is written */
static u32 tried;  /* up to here, names of next ones are taken */
static ulong rotator; /* thread pointer, made odd, of who rotates */

/* What the header counts of each probe and watch, and goes on counting in the next file: there it begins
 * with what it has here, and what is added here later is added there, too. */
#if defined(PROBES) || defined(WATCH)
static u64 *handed[SLOTS]; /* what the file in a slot has handed on */

static u32 counters(void)
{
	u32 n = 0;

#ifdef PROBES
	n += probe_table()->probe_count;
#endif
#ifdef WATCH
	n += 2 * WATCHES;
#endif
	return n;
}

static u64 *counter(struct trace_header *header, u32 n)
{
#ifdef PROBES
	if (n < probe_table()->probe_count)
		return &trace_probe(header, n)->missed;
	n -= probe_table()->probe_count;
#endif
#ifdef WATCH
	return n < WATCHES ? &watches_in(header)[n].hits : &watches_in(header)[n - WATCHES].missed;
#else
	return 0;
#endif
}

static void counts_handed_on(u32 slot, struct trace_header *from, struct trace_header *to)
{
	u32 n, most = counters();

	for (n = 0; n < most; n++) {
		/* An addition, since no load of 8 bytes is one access on i386. */
		u64 now = __atomic_fetch_add(counter(from, n), 0, __ATOMIC_RELAXED);

		__atomic_fetch_add(counter(to, n), now - handed[slot][n], __ATOMIC_RELAXED);
		handed[slot][n] = now;
	}
}

static void counts_begun(u32 slot)
{
	u32 n, most = counters();

	for (n = 0; n < most; n++)
		((volatile u64 *)handed[slot])[n] = 0;
}
#else
#define counts_handed_on(slot, from, to) ((void)(slot), (void)(from), (void)(to))
#define counts_begun(slot) ((void)(slot))
#endif

static struct kept *kept_at(u32 i)
{
	return &kept[(first + i) % (MAX_ROTATE + SLOTS)];
}

static void nap(void)
{
	long time[2] = {0, NAP};

	syscall6(SYS_nanosleep, (long)time, 0, 0, 0, 0, 0);
}

/* FTPATCH_TRACE_ROTATE, or what the program was patched with. */
void rotation_wanted(char **envp)
{
	static const char variable[] = "FTPATCH_TRACE_ROTATE";
	const char *text = environment(envp, variable), *at = text;
	u32 wanted = ftpatch_config.flags >> TRACE_KEEPS, n = 0;
	long ret;
#if defined(PROBES) || defined(WATCH)
	ulong room = counters() * sizeof(u64);
#endif


	if (text && *text) {
		for (; *at >= '0' && *at <= '9' && n <= MAX_ROTATE; at++)
			n = n * 10 + (u32)(*at - '0');
		if (*at || n > MAX_ROTATE)
			say(variable, text, "not a number of files up to 999; using the program's default");
		else
			wanted = n;
	}
	if (!wanted)
		return;
	if (process.flags & TRACE_RING) {
		if (text && *text)
			say(variable, text, "a ring is not rotated");
		return;
	}
#ifdef PROBES
	if (probe_table()->hists) {
		say(text ? variable : 0, text, "a histogram is in one file: the trace is not rotated");
		return;
	}
#endif
	if (ftpatch_config.clock & GIVES_UP_CALLS) {
		say(text ? variable : 0, text, "the program may forbid system calls: its trace is not rotated");
		return;
	}
	ret = mmap_(0, (MAX_ROTATE + SLOTS) * sizeof(*kept), PROT_RW, ANONYMOUS, -1);
	if (failed(ret))
		return;
	kept = (struct kept *)ret;
#ifdef PROBES
	ret = mmap_(0, probe_table()->probe_count * sizeof(*states) + 1, PROT_RW, ANONYMOUS, -1);
	if (failed(ret))
		return;
	states = (struct trace_probe *)ret;
#endif
#if defined(PROBES) || defined(WATCH)
	ret = mmap_(0, SLOTS * room, PROT_RW, ANONYMOUS, -1);
	if (failed(ret))
		return;
	for (n = 0; n < SLOTS; n++)
		handed[n] = (u64 *)((ulong)ret + n * room);
#endif
	process.rotate = wanted;
	syscall6(SYS_membarrier, BARRIER_WANTED, 0, 0, 0, 0, 0);
}

/* A process has its first file, or one in place of all before. */
void rotation_begun(struct trace_header *header)
{
	u32 i;

	for (i = 0; i < SLOTS; i++) {
		slots[i].at = slots[i].room = 0;
		slots[i].header = 0;
		slots[i].is_kept = 0;
	}
	slots[0].at = (ulong)header;
	slots[0].room = (ulong)header->size;
	slots[0].header = header;
	if (process.rotate)
		counts_begun(0);
	first = count = number = tried = 0;
#ifdef PROBES
	process.states = process.rotate ? states : trace_probe(header, 0);
	for (i = 0; i < probe_table()->probe_count && process.rotate; i++) {
		states[i].counted = states[i].first = 0;
		states[i].active = 0;
	}
#endif
}

/* A forked child has no use for its parent's full files, unless it interrupted a store there. */
void rotation_forked(ulong tp, const struct trace_header *parents)
{
	const struct thread *t;
	u32 i;

	for (t = process.threads; t; t = t->next)
		if (t->tp == tp && t->busy)
			return;
	for (i = 0; i < SLOTS && process.rotate; i++)
		if (slots[i].at && slots[i].header != parents) {
			munmap_(slots[i].at, slots[i].room);
			mapping_kept(slots[i].at, 0); /* what comes there is the program's */
			slots[i].at = slots[i].room = 0;
			slots[i].header = 0;
		}
}

static int has_ended(const struct thread *t)
{
	return syscall6(SYS_tgkill, process.pid, t->tid, 0, 0, 0, 0) == -ESRCH;
}

/* Whether a chunk's end is in a file. */
static int is_in(const struct trace_header *header, const u64 *end)
{
	return (ulong)end - (ulong)header - 1 < header->size;
}

/* Whether a thread may be storing to another file than the last one: all its places are there, or it has
 * none since it was left where it is. */
static int is_elsewhere(const struct thread *t, const struct trace_header *last)
{
	int in_last = is_in(last, t->end), has_place = t->end != 0;
#ifdef TOGETHER
	u32 kind;

	for (kind = KIND_CALLS + 1; kind < KINDS; kind++) {
		const struct thread *at = t->streams[kind - 1];

		if (!at)
			continue;
		in_last = in_last && is_in(last, at->end);
		has_place = has_place || at->end;
	}
#endif
	return !in_last && (has_place || !t->stuck);
}

/* Make threads leave all files but the last one at their next event. Who has a place there is waited for, unless
 * that `is_over`. What they have stored by then is visible. */
static void others_told(const struct trace_header *last, int is_over)
{
	struct thread *t;
	u32 i;

	for (t = process.threads; t; t = t->next)
		for (i = 0; i < SLOTS; i++)
			if (slots[i].header && slots[i].header != last && is_in(slots[i].header, t->end)) {
				if (!is_over)
					whole_of(t)->stuck = 0;
				t->end = 0;
			}
	if (failed(syscall6(SYS_membarrier, BARRIER, 0, 0, 0, 0, 0)))
		nap();
}

/* The same. 0 if one may still be storing there. */
static int others_left(const struct trace_header *last, const struct thread *own)
{
	struct thread *t;

	others_told(last, 0);
	for (t = process.threads; t; t = t->next)
		if (t != own && t->busy && !t->waits && is_elsewhere(t, last) && !has_ended(t))
			return 0;
	return 1;
}

/* Go on without the threads that may be storing there: that memory is left to them, and the last file's, of
 * which one may be taking a chunk. More than the event that they are storing would not be counted, so who
 * goes on takes another chunk:
 *
 *     thread that takes a chunk       the one that rotates
 *     end = the chunk's               stuck = 1
 *     stuck: take another one         end of a file that is left: 0
 *
 * Twice: for who took one before `stuck` was visible, or began to store meanwhile. */
static void others_given_up(const struct trace_header *last, const struct thread *own)
{
	struct thread *t;
	u32 i;

	for (i = 0; i < 2; i++) {
		for (t = process.threads; t; t = t->next)
			if (t != own && t->busy && !t->waits && is_elsewhere(t, last))
				t->stuck = 1;
		others_told(last, 1);
	}
	for (i = 0; i < SLOTS; i++)
		if (slots[i].header == last)
			slots[i].is_kept = 1;
}

static u64 events_in(const struct trace_header *header)
{
	u64 end = header->header_size + header->taken, at, n = header->overwritten;

	if (end > header->accounts)
		end = header->accounts;
	for (at = header->header_size; at + CHUNK <= end; at += CHUNK) {
		const struct trace_chunk *chunk = (const struct trace_chunk *)((const char *)header + at);

		if (chunk->magic == CHUNK_MAGIC)
			n += events_of(chunk);
	}
	return n;
}

static int is_anybody_stuck(void)
{
	const struct thread *t;

	for (t = process.threads; t; t = t->next)
		if (t->stuck && !has_ended(t))
			return 1;
	return 0;
}

/* Nobody stores to a file any more: its slot is free, or without `is_free`, left alone for ever. */
static void file_left(struct trace_header *header, struct trace_header *last, int is_free)
{
	struct kept *one;
	u32 i, kind;

	for (i = 0; i < count; i++) {
		one = kept_at(i);
		if (one->header != header)
			continue;
		one->events = events_in(header);
		for (kind = 0; kind < LOST_KINDS; kind++)
			one->lost[kind] = header->lost[kind];
		one->cut = header->cut;
		one->header = 0;
	}
	for (i = 0; i < SLOTS; i++) {
		if (slots[i].header != header)
			continue;
		if (!is_cut((ulong)header))
			counts_handed_on(i, header, last);
		slots[i].header = 0;
		is_free = is_free && !(slots[i].is_kept && is_anybody_stuck());
		slots[i].is_kept = 0;
		if (!is_free || failed(mmap_(slots[i].at, slots[i].room, PROT_RW, ANONYMOUS_FIXED, -1)))
			slots[i].at = slots[i].room = 0;
	}
}

static void files_left(struct trace_header *last, int is_free)
{
	u32 i;

	for (i = 0; i < SLOTS; i++)
		if (slots[i].header && slots[i].header != last)
			file_left(slots[i].header, last, is_free);
}

/* A slot for the next file. Threads that are stopped in the middle of a store have some time to go on. */
static u32 slot_freed(struct trace_header *last, const struct thread *own)
{
	u32 i, naps;

	for (naps = 0;; naps++) {
		if (others_left(last, own)) {
			files_left(last, 1);
		} else if (naps == NAPS) {
			others_given_up(last, own);
			files_left(last, 0);
		}
		for (i = 0; i < SLOTS; i++)
			if (!slots[i].header)
				return i;
		nap();
	}
}

/* Remove the oldest file, and count what was in it. 0 if there is none, or threads are still there. */
static int oldest_removed(struct trace_header *last)
{
	struct kept *one = kept_at(0);
	char path[PATH];
	u32 kind;

	if (!count || one->header || !place_of(path, one->number))
		return 0;
	__atomic_fetch_add(&last->overwritten, one->events, __ATOMIC_RELAXED);
	for (kind = 0; kind < LOST_KINDS; kind++)
		__atomic_fetch_add(&last->lost[kind], one->lost[kind], __ATOMIC_RELAXED);
	__atomic_fetch_add(&last->cut, one->cut, __ATOMIC_RELAXED);
	unlink_(path);
	first = (first + 1) % (MAX_ROTATE + SLOTS);
	count--;
	return 1;
}

/* Whether there is no room for one chunk more. */
static int is_full(const struct trace_header *header)
{
	return header->flags & TRACE_NO_ROOM ||
	       header->header_size + header->taken + CHUNK > header->accounts;
}

static int rotated(struct trace_header *full, const struct thread *own)
{
	u32 slot = slot_freed(full, own), next = (tried > number ? tried : number) + 1;
	struct kept *one;
	u32 i;
	long ret;

	while (count >= process.rotate && oldest_removed(full))
		;
	if (count >= MAX_ROTATE + SLOTS - 1)
		return 0;
	do
		ret = make_next(full, slots[slot].at, slots[slot].room, &next);
	while (ret == -ENOSPC && oldest_removed(full));
	if (ret == -EEXIST)
		tried = next;
	if (failed(ret))
		return 0;
	if ((ulong)process.header != slots[slot].at) {
		slots[slot].at = (ulong)process.header;
		slots[slot].room = (ulong)process.header->size;
	}
	slots[slot].header = process.header;
	counts_begun(slot);
	for (i = 0; i < SLOTS; i++)
		if (slots[i].header == full)
			counts_handed_on(i, full, process.header);
	one = kept_at(count++);
	one->number = number;
	one->header = full;
	number = next;
	return 1;
}

/* Whether the calling thread is in the middle of it. */
int is_rotator(void)
{
	return process.rotating == process.pid && rotator == (thread_pointer() | 1);
}

/* Nobody else rotates until rotation_ended(). 0: a handler forked. */
static int rotation_taken(u32 pid, const u64 *all, u64 *old)
{
	u32 other;

	for (;;) {
		syscall6(SYS_rt_sigprocmask, SIG_SETMASK, (long)all, (long)old, sizeof(*all), 0, 0);
		other = process.rotating;
		if (process.pid == pid && other != pid &&
		    __atomic_compare_exchange_n(&process.rotating, &other, pid, 0, __ATOMIC_ACQUIRE,
						__ATOMIC_RELAXED))
			break;
		syscall6(SYS_rt_sigprocmask, SIG_SETMASK, (long)old, 0, sizeof(*all), 0, 0);
		if (process.pid != pid)
			return 0;
		nap();
	}
	rotator = thread_pointer() | 1;
	return 1;
}

static void rotation_ended(const u64 *old)
{
	rotator = 0;
	__atomic_store_n(&process.rotating, 0, __ATOMIC_RELEASE);
	syscall6(SYS_rt_sigprocmask, SIG_SETMASK, (long)old, 0, sizeof(*old), 0, 0);
}

#define ALL ~(1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1))

/* Somebody has truncated a file of `size` bytes: stores there are to memory that nobody reads. */
void rotation_cut(struct trace_header *header, u64 size)
{
	const u64 all = ALL;
	struct thread *t;
	u64 old, bytes = 0;

	if (!process.rotate) {
		if (process.header == header)
			file_lost(size);
		return;
	}
	if (!rotation_taken(process.pid, &all, &old))
		return;
	if (process.header == header) {
		file_lost(size);
	} else if (process.header) {
		for (t = process.threads; t; t = t->next)
			if ((ulong)t->end - (ulong)header - 1 < size) {
				t->pos = t->end = 0;
				bytes += CHUNK;
			}
		__atomic_fetch_add(&process.header->cut, bytes, __ATOMIC_RELAXED);
	}
	rotation_ended(&old);
}

/* Begin the next file. Who truncates one of both meanwhile has left nothing that is sure of either. */
static int rotated_or_lost(struct trace_header *full, const struct thread *own)
{
	u64 size = full->size;
	int done = !is_cut((ulong)full) && rotated(full, own);
	char path[PATH];

	if (!is_cut((ulong)full) && !is_cut((ulong)process.header))
		return done;
	if (done && place_of(path, number))
		unlink_(path);
	file_lost(size ?: process.size);
	return process.header != 0;
}

/* See to it that a process's file is not full. 0 if there can be no other one. */
REGISTERS int file_rotated(struct thread *t)
{
	const u64 all = ALL;
	struct trace_header *full = process.header;
	struct thread *whole = whole_of(t);
	u64 old;
	u32 pid = process.pid;
	int done;

	if (!full || !process.rotate || !(full->flags & TRACE_ROTATES) || full->pid != pid)
		return 0;
	whole->pos = whole->end = 0;
#ifdef TOGETHER
	for (done = KIND_CALLS + 1; done < KINDS; done++)
		if (whole->streams[done - 1])
			whole->streams[done - 1]->pos = whole->streams[done - 1]->end = 0;
#endif
	barrier();
	whole->waits = 1;
	if (!rotation_taken(pid, &all, &old))
		return 0;
	full = process.header;
	done = full && ((!is_cut((ulong)full) && !is_full(full)) || rotated_or_lost(full, whole));
	__atomic_store_n(&whole->waits, 0, __ATOMIC_RELEASE);
	rotation_ended(&old);
	return done;
}
#endif
