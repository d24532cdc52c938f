// SPDX-License-Identifier: MIT
/* Someone truncates the trace file while it is mapped, undeterred by its permissions: the next
 * store past the end raises SIGBUS. The files of `ftpatch trace` have no name to do that by. For
 * others there is a handler, unless the program has its own: what was recorded is lost and counted,
 * and the process goes on in another file. Any other SIGBUS keeps its effect. */
#include "action.h"
#include "file.h"
#include "link_map.h"
#ifdef PROBES
#include "probes.h"
#endif

#define MAP_ANONYMOUS_FIXED (2 | 0x10 | 0x20 | MAP_NORESERVE_) /* MAP_PRIVATE | _FIXED | _ANONYMOUS | _NORESERVE */
#define BUS_ADRERR 2 /* no such place in the file */
#define MAPPINGS 8 /* own files, and the latest of the processes this one was forked from */

struct info {
	int signal, error, code;
	ulong address;
};

static struct {
	ulong at, size;
	u32 is_cut; /* there is no file behind it any more */
} mappings[MAPPINGS];
static u32 next, busy; /* process id of whoever is at it: a forked child is not */

/* A file of this process, which may be in the place of an earlier one. */
void mapping_kept(ulong at, ulong size)
{
	u32 i;

	for (i = 0; i < MAPPINGS && mappings[i].at != at; i++)
		;
	if (i == MAPPINGS)
		i = next++ % MAPPINGS;
	mappings[i].is_cut = 0;
	mappings[i].at = at;
	mappings[i].size = size;
}

/* Whether the file that was mapped there is gone. */
int is_cut(ulong at)
{
	u32 i;

	for (i = 0; i < MAPPINGS; i++)
		if (mappings[i].at == at && mappings[i].is_cut)
			return 1;
	return 0;
}

/* Upper bound of what threads wrote there (bytes). */
static u64 left_behind(void)
{
	struct thread *t;
	u64 bytes = 0;

	for (t = process.threads; t; t = t->next) {
		bytes += (u64)t->number * (ftpatch_config.tracer == TRACER_PROFILE ? ftpatch_config.profile : CHUNK);
		t->pos = t->end = 0;
		t->chunk = 0;
		t->account = 0;
		t->number = t->full = t->elsewhere = 0;
#ifdef PROBES
		struct frame *frame;

		for (frame = t->low; frame < t->top; frame++) /* they are counted there */
			__atomic_fetch_and(&frame->func, ~(u64)INSTANCE, __ATOMIC_RELAXED);
#endif
	}
	return bytes;
}

/* Whether a file that grows by stores has found the disk full there, and not been truncated: then all before is
 * still there, and the page becomes memory that nobody reads. */
static int was_full(const struct trace_header *header, ulong address)
{
	ulong page = process.page ?: PAGE;

	if (!process.stores || header != process.header || !readable((ulong)header) ||
	    address - (ulong)header < (u64)header->grown * TRACE_UNIT ||
	    failed(mmap_(address & -page, page, PROT_RW, MAP_ANONYMOUS_FIXED, -1)))
		return 0;
	if (!__atomic_exchange_n(&process.full, 1, __ATOMIC_RELAXED))
		say(0, 0, "the disk is full; what follows is counted, and not recorded");
	return 1;
}

/* A process goes on in another file than one of `size` bytes that was truncated. */
void file_lost(u64 size)
{
	u64 bytes;

	process.header = 0;
	bytes = left_behind();
	do /* who truncates that one as well has left nothing that is sure of it */
		process.header = 0;
	while (!failed(make_file(1)) && is_cut((ulong)process.header));
	if (process.header)
		process.header->cut = bytes < size ? bytes : size;
}

/* 0 if the address is in none of our files. One thread does the work; the others fault again. */
static int was_cut(ulong address)
{
	struct trace_header *header;
	u32 i, pid = (u32)syscall6(SYS_getpid, 0, 0, 0, 0, 0, 0), other = busy;
	int begins = is_rotator(); /* it is in the middle of what others may be waiting for */

	for (i = 0; i < MAPPINGS; i++)
		if (address - mappings[i].at < mappings[i].size)
			break;
	if (i == MAPPINGS)
		return 0;
	if (mappings[i].is_cut) /* by now there is memory */
		return 1;
	if (was_full((struct trace_header *)mappings[i].at, address))
		return 1;
	if (!begins &&
	    (other == pid ||
	     !__atomic_compare_exchange_n(&busy, &other, pid, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)))
		return 1;
	/* Stores in progress go on, to memory that nobody reads. */
	header = (struct trace_header *)mappings[i].at;
	if (failed(mmap_(mappings[i].at, mappings[i].size, PROT_RW, MAP_ANONYMOUS_FIXED, -1)))
		return 0;
	header->chunk_size = CHUNK;
	header->header_size = CHUNK; /* with a `size` of 0: no room */
	mappings[i].is_cut = 1;
	if (process.overflow == header)
		process.overflow = 0;
	if (begins)
		return 1; /* file_rotated() sees to the rest */
	rotation_cut(header, mappings[i].size);
	__atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
	return 1;
}

LANDING static void bus_error(int signal, const struct info *info, void *context)
{
	struct action none = ACTION(0, 0, 0);

	(void)signal;
	(void)context;
	if (info->code == BUS_ADRERR && was_cut(info->address))
		return;
	/* Blocked while it is being handled, and pending: afterwards it acts as it would without a
	 * handler. */
	act_on(SIGBUS, &none, 0);
	syscall6(SYS_tgkill, syscall6(SYS_getpid, 0, 0, 0, 0, 0, 0),
		 syscall6(SYS_gettid, 0, 0, 0, 0, 0, 0), SIGBUS, 0, 0, 0);
}

/* Install ours if this signal has no handler; return whether it is there. */
int bus_kept(void)
{
	struct action old = ACTION(0, 0, 0), new = ACTION(bus_error, SA_SIGINFO | SA_RESTART, ~0ull);

	with_restorer(&new);
	if (act_on(SIGBUS, 0, &old) == 0 && !old.handler)
		return act_on(SIGBUS, &new, 0) == 0;
	return old.handler == (void *)bus_error;
}
