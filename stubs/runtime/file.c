/* Making the trace file: its name, its room on the disk, its header. */
#include "file.h"
#include "libraries.h"
#ifdef PROBES
#include "probes.h"
#endif
#ifdef WATCH
#include "watch.h"
#endif

#define O_FLAGS (02 | 0100 | 0200 | 02000000) /* O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC */
#define MAP_SHARED 1
#define PR_GET_NAME 16
#define EINTR 4
#define EEXIST 17
#define ENOSYS 38
#define EOPNOTSUPP 95
#define TRIES 99 /* programs of one process id, one after the other */

static ulong length(const char *text)
{
	ulong n = 0;

	while (text[n])
		n++;
	return n;
}

/* Append text to at most `size` bytes, NUL included; 0 if it does not fit. */
static int append(char *to, ulong size, const char *text)
{
	ulong at = length(to), n = length(text), i;

	if (at + n + 1 > size)
		return 0;
	for (i = 0; i <= n; i++)
		to[at + i] = text[i];
	return 1;
}

static int append_number(char *to, ulong size, u32 number)
{
	char digits[12];
	int i = sizeof(digits) - 1;

	digits[i] = 0;
	do
		digits[--i] = '0' + number % 10;
	while (number /= 10);
	return append(to, size, digits + i);
}

static long create(const char *path)
{
	return open_(path, O_FLAGS | O_NOFOLLOW_, 0600);
}

/* What fallocate() does, where the file system does not know how: zeros. */
static long filled(long fd, u64 size)
{
	static char zeros[1024];
	long ret = 0;

	for (; size; size -= (u64)ret) {
		ret = syscall6(SYS_write, fd, (long)zeros, size < sizeof(zeros) ? size : sizeof(zeros), 0, 0, 0);
		if (ret <= 0)
			return -1;
	}
	return 0;
}

/* The file's whole size on the disk, so that no write to a page of it can fail. Where the disk, or
 * the limit of the process, has not enough, half of it. 0 for none. */
static u64 allocate(long fd, u64 size, u64 least)
{
	u64 limit[2] = {~0ull, ~0ull};

	file_limit(limit);
	while (size > limit[0])
		size /= 2;
	for (; size >= least; size /= 2) {
		u64 whole = size / PAGE * PAGE;
		long ret;

		do
			ret = fallocate_(fd, whole);
		while (ret == -EINTR);
		if (ret == -EOPNOTSUPP || ret == -ENOSYS)
			ret = filled(fd, whole);
		if (!failed(ret))
			return whole;
		truncate_(fd, 0);
	}
	return 0;
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

struct trace_header *make_file(const char *wanted, int again)
{
	char path[1024];
	struct trace_header *header;
	u64 size = process.size, told = 0;
	ulong end;
	long fd;
	u32 i;

	path[0] = 0; /* not all of it: gcc would call memset */
	if (wanted && *wanted) {
		if (!append(path, sizeof(path), wanted))
			return 0;
	} else {
		append(path, sizeof(path), "ftpatch.");
		append_number(path, sizeof(path), process.pid);
		append(path, sizeof(path), ".trace");
		again = 0;
	}
	fd = again ? -1 : create(path);
	if (failed(fd) && wanted && *wanted) { /* another program of this run has it */
		if (!append(path, sizeof(path), ".") ||
		    !append_number(path, sizeof(path), process.pid))
			return 0;
		fd = create(path);
	}
	end = length(path);
	for (i = 2; fd == -EEXIST && i <= TRIES; i++) { /* this process, before it became another */
		path[end] = 0;
		if (!append(path, sizeof(path), ".") || !append_number(path, sizeof(path), i))
			return 0;
		fd = create(path);
	}
	if (failed(fd))
		return 0;
#ifdef PROBES
	told = probe_table()->told_size;
#endif
#ifdef WATCH
	told = WATCHES * sizeof(struct trace_watch);
#endif
	size = allocate(fd, size + told, LEAST + told);
	header = size ? (void *)mmap_(0, size, PROT_RW, MAP_SHARED, fd) : (void *)-1;
	syscall6(SYS_close, fd, 0, 0, 0, 0, 0);
	if (failed((long)header)) {
		unlink_(path);
		return 0;
	}
	header->version = TRACE_VERSION;
	header->header_size = TRACE_HEADER + told;
	header->machine = ftpatch_config.machine;
	header->chunk_size = ftpatch_config.tracer == TRACER_PROFILE ? ftpatch_config.profile : CHUNK;
	header->tracer = ftpatch_config.tracer;
	header->flags = ftpatch_config.flags;
	header->size = size;
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
	/* Where it really is: the program may have been named from another folder. */
	if (readlink_("/proc/self/exe", header->path, sizeof(header->path) - 1) <= 0 && process.name)
		append(header->path, sizeof(header->path), process.name);
	libraries_told(header);
	process.chunks_end = size - TRACE_HEADER - told;
#ifdef PROBES
	probes_told(header);
#endif
#ifdef WATCH
	watches_told(header);
#endif
	barrier();
	for (i = 0; i < sizeof(header->magic); i++)
		header->magic[i] = TRACE_MAGIC[i];
	return header;
}
