// SPDX-License-Identifier: MIT
/* The trace file: allocating it on disk, its header. */
#include "file.h"
#include "libraries.h"
#ifdef PROBES
#include "probes.h"
#endif
#ifdef WATCH
#include "watch.h"
#endif

#define MAP_SHARED 1
#define PR_GET_NAME 16
#define MADV_RANDOM 1
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#define STEP_LEAST (64ul << 10) /* bytes that the file grows by: its current size, but ... */
#define STEP_MOST (1ul << 20)   /* ... within these bounds */
#define ROOMY 16                /* files that there must be room for, where one grows by stores */
#define ACCOUNT_SHARE 256       /* fraction of a file for what threads lose ... */
#define ACCOUNTS_MOST (256ul << 10) /* ... and at most so many bytes */

/* Fall back to writing zeros if the file system lacks fallocate(). */
static long filled(long fd, u64 size)
{
	static char zeros[1024];
	long ret = 0;

	for (; size; size -= (u64)ret) {
		ret = syscall6(SYS_write, fd, (long)zeros, size < sizeof(zeros) ? size : sizeof(zeros), 0, 0, 0);
		if (ret <= 0)
			return ret ? ret : -ENOSPC;
	}
	return 0;
}

/* Make pages of the file writable in memory, and so allocate them on disk. A store to one without a
 * block would raise SIGBUS on a full disk; this reports it. */
static long populated(char *at, ulong size)
{
	long ret;

	do
		ret = syscall6(SYS_madvise, (long)at, (long)size, MADV_POPULATE_WRITE, 0, 0, 0);
	while (ret == -EINTR);
	return ret;
}

/* The same without system calls, but for what the handler of SIGBUS makes on a full disk (sigbus.c). Others
 * may have begun to use the pages. */
static long stored(char *at, ulong size)
{
	ulong page = process.page ?: PAGE;
	char *end = at + size;

	for (; at < end && !process.full; at += page)
		__atomic_fetch_add((u32 *)at, 0, __ATOMIC_RELAXED);
	return process.full ? -ENOSPC : 0;
}

REGISTERS long populate(char *at, ulong size)
{
	return process.stores ? stored(at, size) : populated(at, size);
}

static inline u64 pages(u64 size)
{
	return (size + PAGE - 1) & ~(u64)(PAGE - 1);
}

/* Grow the file, at least up to `end`; 0 if the disk is full. */
REGISTERS int file_grown(struct trace_header *header, u64 end)
{
	u32 units;

	while ((u64)(units = __atomic_load_n(&header->grown, __ATOMIC_ACQUIRE)) * TRACE_UNIT < end) {
		u64 had = (u64)units * TRACE_UNIT, to;

		to = pages(had + (had < STEP_LEAST ? STEP_LEAST : had < STEP_MOST ? had : STEP_MOST));
		if (to < end)
			to = pages(end);
		if (to > header->size)
			to = header->size;
		if (to <= had) /* somebody has just truncated it */
			return 0;
		if (failed(populate((char *)header + had, (ulong)(to - had)))) {
			to = pages(end); /* the last that fits */
			if (to > header->size)
				to = header->size;
			if (failed(populate((char *)header + had, (ulong)(to - had)))) {
				__atomic_fetch_or(&header->flags, TRACE_NO_ROOM, __ATOMIC_RELAXED);
				return 0;
			}
		}
		/* Of this header: a handler that forked has another one. */
		__atomic_compare_exchange_n(&header->grown, &units, (u32)(to / TRACE_UNIT), 0,
					    __ATOMIC_RELEASE, __ATOMIC_RELAXED);
	}
	return 1;
}

/* Map a file of `size` bytes, allocating all of them, or only the first `first` if the rest can
 * follow on demand. */
static long mapped(long fd, u64 size, u64 first)
{
	long ret, at;

	do
		ret = first ? truncate_(fd, size) : fallocate_(fd, size);
	while (ret == -EINTR);
	if (!first && (ret == -EOPNOTSUPP || ret == -ENOSYS))
		ret = filled(fd, size);
	if (failed(ret))
		return ret;
	at = mmap_(0, (ulong)size, PROT_RW, MAP_SHARED, fd);
	if (failed(at) || !first)
		return at;
	/* Most forked children need no more, and the kernel must not read ahead: of a sparse file
	 * it makes megabytes of zeros. */
	syscall6(SYS_madvise, at, (long)first, MADV_RANDOM, 0, 0, 0);
	ret = populated((char *)at, (ulong)first);
	if (!failed(ret))
		return at;
	munmap_(at, (ulong)size);
	return ret == -EFAULT ? -ENOSPC : ret;
}

/* Map as much as wanted; if the disk, the address space or a limit of the process does not allow
 * it, half of that, and so on. `made` is the resulting size, `grown` how much of it is on disk. */
static long sized(long fd, u64 size, u64 least, u64 *made, u64 *grown)
{
	u64 limit[2] = {~0ull, ~0ull};
	long ret = -EFBIG;

	file_limit(limit);
	while (size > limit[0])
		size /= 2;
	while (size >= least) {
		u64 whole = size / PAGE * PAGE, first = process.grows ? pages(TRACE_HEADER + least - LEAST + CHUNK) : 0;

		ret = mapped(fd, whole, first);
		if (!failed(ret)) {
			*made = whole;
			*grown = first ? first : whole;
			return ret;
		}
		truncate_(fd, 0);
		if (first && (ret == -EINVAL || ret == -ENOSYS || ret == -EPERM))
			process.grows = 0; /* an older kernel */
		else if (first && ret != -ENOMEM && ret != -EFBIG)
			break; /* no room for one page */
		else
			size /= 2;
	}
	return ret;
}

#ifdef PROBES
static void probes_told(struct trace_header *header)
{
	const struct probe_table *table = probe_table();
	const u64 *from = linked(u64, table->told);
	u64 *to = (u64 *)((char *)header + TRACE_HEADER);
	u32 i;

	for (i = 0; i < table->told_size / sizeof(*to); i++)
		to[i] = from[i];
	header->probes = table->probe_count;
}
#endif

/* Bytes at the end of a file of `size` that are for what threads lose: they are on disk once that is
 * used. */
static u64 accounts_size(u64 size)
{
	u64 wanted = (size / ACCOUNT_SHARE + TRACE_UNIT - 1) & ~(u64)(TRACE_UNIT - 1);

	return wanted < ACCOUNTS_MOST ? wanted : ACCOUNTS_MOST;
}

/* Nobody knows which programs forbid system calls after they have loaded a library: its file grows by stores
 * to it. On a full disk these raise SIGBUS. So where nothing handles that, or the disk has little room, all of
 * the file is allocated at once. */
static void growth_chosen(long fd, int named)
{
	process.stores = process.wiped && named && room_left(fd) / ROOMY >= process.size && bus_kept();
	process.grows = process.stores;
}

/* All is there that a reader needs. */
static void marked(struct trace_header *header)
{
	u32 i;

	barrier();
	for (i = 0; i < sizeof(header->magic); i++)
		header->magic[i] = TRACE_MAGIC[i];
	barrier();
}

/* 0, or a negative errno: then nothing has changed. */
long make_file(int again)
{
	char path[PATH];
	struct trace_header *header;
	u64 told = 0, size = 0, grown = 0;
	long fd, at;
	u32 i;

	path[0] = 0;
	fd = file_handed(again);
	if (failed(fd))
		fd = place_made(path, again);
	if (failed(fd))
		return fd;
#ifdef PROBES
	told = probe_table()->told_size + probe_table()->hists;
#endif
#ifdef WATCH
	told += WATCHES * sizeof(struct trace_watch);
#endif
	if (ftpatch_config.flags & TRACE_LIBRARY && !again)
		growth_chosen(fd, path[0]);
	process.full = 0;
	at = sized(fd, process.size + told, LEAST + told, &size, &grown);
	syscall6(SYS_close, fd, 0, 0, 0, 0, 0);
	if (failed(at)) {
		if (path[0])
			unlink_(path);
		return at;
	}
	mapping_kept((ulong)at, (ulong)size);
	if (path[0] && !(ftpatch_config.flags & TRACE_ATTACHED))
		bus_kept();
	header = (struct trace_header *)at;
	header->version = ftpatch_config.flags & TRACE_TOGETHER ? TRACE_VERSION_TOGETHER : TRACE_VERSION;
	header->header_size = TRACE_HEADER + told;
	header->machine = ftpatch_config.machine;
	header->chunk_size = ftpatch_config.tracer == TRACER_PROFILE ? ftpatch_config.profile : CHUNK;
	header->tracer = ftpatch_config.tracer;
	/* What does not fit into a small file goes to a parent's, and that is a ring. */
	header->flags = process.flags & ~(u32)(TRACE_OFF | (process.overflow ? TRACE_RING : 0));
	if (!path[0])
		process.rotate = 0; /* of `ftpatch trace`, which has one for each process */
	if (process.rotate)
		header->flags |= TRACE_ROTATES;
	header->off = process.flags & TRACE_OFF ? 1 : 0;
	header->size = size;
	if (ftpatch_config.tracer != TRACER_PROFILE)
		header->accounts = size - accounts_size(size);
	header->grown = (u32)(grown / TRACE_UNIT);
	header->bias = process.bias;
	header->base = ftpatch_config.base;
	header->hz = process.hz;
	header->ticks = ticks();
	header->realtime = nanoseconds(0);
	header->pid = process.pid;
	header->ppid = (u32)syscall6(SYS_getppid, 0, 0, 0, 0, 0, 0);
	header->depth = ftpatch_config.depth;
	for (i = 0; i < sizeof(header->image_id); i++)
		header->image_id[i] = ftpatch_config.image_id[i];
	syscall6(SYS_prctl, PR_GET_NAME, (long)header->comm, 0, 0, 0, 0);
	/* The real path: the program may have been started by a relative one. */
	if (ftpatch_config.flags & TRACE_LIBRARY)
		append(header->path, sizeof(header->path), library_path());
	else if (readlink_("/proc/self/exe", header->path, sizeof(header->path) - 1) <= 0)
		append(header->path, sizeof(header->path), program_name());
	libraries_told(header);
#ifdef PROBES
	probes_told(header);
#endif
#ifdef WATCH
	watches_told(header);
#endif
	marked(header);
	process.header = header;
	rotation_begun(header);
	return 0;
}

#ifdef ROTATING
#define MREMAP_TO 3 /* MREMAP_MAYMOVE | MREMAP_FIXED */

/* Make the file after one that is full, in the `room` bytes of address space at `place`; or elsewhere if
 * it needs more. What the header says of the process is what it said before. `number` is that of its
 * name, or a later one that is free. 0, or a negative errno: then nothing has changed. */
long make_next(struct trace_header *full, ulong place, u64 room, u32 *number)
{
	char path[PATH];
	struct trace_header *header;
	u64 size = 0, grown = 0, told = full->header_size - TRACE_HEADER;
	long fd = place_next(path, number), at, ret;
	u32 i, off;

	if (failed(fd))
		return fd;
	at = sized(fd, process.size + told, LEAST + told, &size, &grown);
	syscall6(SYS_close, fd, 0, 0, 0, 0, 0);
	if (!failed(at) && size <= room) {
		ret = syscall6(SYS_mremap, at, (long)size, (long)size, MREMAP_TO, (long)place, 0);
		if (failed(ret))
			munmap_((ulong)at, (ulong)size);
		at = ret;
	}
	if (failed(at)) {
		unlink_(path);
		return at;
	}
	mapping_kept((ulong)at, (ulong)size);
	header = (struct trace_header *)at;
	for (i = sizeof(header->magic) / sizeof(u64); i < TRACE_HEADER / sizeof(u64); i++)
		((volatile u64 *)header)[i] = ((const u64 *)full)[i];
	header->flags = full->flags & ~(u32)(TRACE_NO_ROOM | TRACE_NEXT | TRACE_ENDED);
	header->size = size;
	header->accounts = size - accounts_size(size);
	header->grown = (u32)(grown / TRACE_UNIT);
	for (i = 0; i < LOST_KINDS; i++)
		header->lost[i] = 0;
	header->taken = header->overwritten = header->cut = 0;
	header->accounted = header->children = header->refusal = 0;
	off = header->off &= OFF_NOW;
#ifdef PROBES
	probes_told(header);
#endif
#ifdef WATCH
	watches_told(header);
#endif
	marked(header);
	process.header = header;
	libraries_told(header); /* one may have been loaded meanwhile */
	/* It may have been switched meanwhile. From outside, that is a store to `off` and then a look at
	 * the flags: either we see the store, or they see TRACE_NEXT, and store to the next file. */
	__atomic_fetch_or(&full->flags, TRACE_NEXT, __ATOMIC_SEQ_CST);
	if ((__atomic_fetch_or(&full->off, OFF_MOVED, __ATOMIC_ACQ_REL) ^ off) & OFF_NOW)
		__atomic_fetch_xor(&header->off, OFF_NOW, __ATOMIC_RELAXED);
	return 0;
}
#endif
