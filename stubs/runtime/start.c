/* Before the program: find out about the process, make the trace file and the memory for threads.
 * These are all the system calls of the runtime, but those of a child of fork, which does it anew. */
#include "threads.h"

struct process process __attribute__((section(".data")));

#define AT_HWCAP2 26
#define AT_EXECFN 31
#define AT_BASE 7
#define AT_SECURE 23
#define O_FLAGS (02 | 0100 | 0200 | 02000000) /* O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC */
#define PROT_RW 3
#define MAP_SHARED 1
#define MAP_PRIVATE_ANONYMOUS_NORESERVE (2 | 0x20 | 0x4000)
#define MADV_WIPEONFORK 18
#define RLIMIT_FSIZE 1
#define PR_GET_NAME 16
#define CHUNK (16u << 10)
#define LEAST (64u << 10)
#define EEXIST 17
#define TRIES 99 /* programs of one process id, one after the other */
#define SPIN 500000 /* nanoseconds, to measure the clock in */

static const char *execfn;

static inline int failed(long ret)
{
	return (ulong)ret > -4096ul;
}

static u64 nanoseconds(int clock)
{
	struct timespec_ now = {0, 0};

	syscall6(SYS_clock_gettime, clock, (long)&now, 0, 0, 0, 0);
	return (u64)now.seconds * 1000000000u + (u64)now.nanoseconds;
}

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

static const char *environment(char **envp, const char *name)
{
	ulong n = length(name), i;

	for (; *envp; envp++) {
		for (i = 0; i < n && (*envp)[i] == name[i]; i++)
			;
		if (i == n && (*envp)[n] == '=')
			return *envp + n + 1;
	}
	return 0;
}

/* "64M" as bytes; 0 for what is no size. */
static u64 size_of(const char *text)
{
	u64 size = 0;

	for (; *text >= '0' && *text <= '9'; text++)
		size = size * 10 + (u64)(*text - '0');
	switch (*text | 0x20) {
	case 'g':
		size <<= 10; /* fall through */
	case 'm':
		size <<= 10; /* fall through */
	case 'k':
		size <<= 10;
	}
	return size;
}

static long create(const char *path)
{
	return open_(path, O_FLAGS | O_NOFOLLOW_, 0600);
}

/* The file's whole size on the disk, so that no write to a page of it can fail. Where the disk, or
 * the limit of the process, has not enough, half of it. 0 for none. */
static u64 allocate(long fd, u64 size)
{
	u64 limit[2] = {~0ull, ~0ull};

	file_limit(limit);
	while (size > limit[0])
		size /= 2;
	for (; size >= LEAST; size /= 2) {
		u64 whole = size / PAGE * PAGE;

		if (!failed(fallocate_(fd, whole)))
			return whole;
		truncate_(fd, 0);
	}
	return 0;
}

static struct trace_header *make_file(const char *wanted, int again)
{
	char path[1024];
	struct trace_header *header;
	u64 size = process.size;
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
	size = allocate(fd, size);
	header = size ? (void *)mmap_(0, size, PROT_RW, MAP_SHARED, fd) : (void *)-1;
	syscall6(SYS_close, fd, 0, 0, 0, 0, 0);
	if (failed((long)header)) {
		unlink_(path);
		return 0;
	}
	header->version = TRACE_VERSION;
	header->header_size = TRACE_HEADER;
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
	header->lost[LOST_EARLY] = process.early;
	for (i = 0; i < sizeof(header->image_id); i++)
		header->image_id[i] = ftpatch_config.image_id[i];
	syscall6(SYS_prctl, PR_GET_NAME, (long)header->comm, 0, 0, 0, 0);
	if (execfn)
		append(header->path, sizeof(header->path), execfn);
	process.chunks_end = size - TRACE_HEADER;
	barrier();
	for (i = 0; i < sizeof(header->magic); i++)
		header->magic[i] = TRACE_MAGIC[i];
	return header;
}

/* Ticks of the clock in a second. */
static u64 measured_hz(void)
{
	u64 begun = nanoseconds(1), first = ticks(), now = begun, last;

	while (now - begun < SPIN)
		now = nanoseconds(1);
	last = ticks();
	return divide((last - first) * 1000000000u, now - begun);
}

static long advise(void *known, int advice)
{
	return syscall6(SYS_madvise, (long)known, sizeof(struct known_threads), advice, 0, 0, 0);
}

/* The first instructions of the process came here: sp points to argc. */
void trace_start(ulong *sp)
{
	char **argv = (char **)(sp + 1), **envp = argv + *sp + 1;
	ulong *aux, hwcap2 = 0, secure = 1, interpreter = 0;
	const char *size;
	ulong stride;
	char *region, *known;

	for (aux = (ulong *)envp; *aux; aux++)
		;
	for (aux++; aux[0]; aux += 2) {
		if (aux[0] == AT_HWCAP2)
			hwcap2 = aux[1];
		else if (aux[0] == AT_SECURE)
			secure = aux[1];
		else if (aux[0] == AT_EXECFN)
			execfn = (const char *)aux[1];
		else if (aux[0] == AT_BASE)
			interpreter = aux[1];
	}
	if (secure) /* not our user's to record, nor to say where to */
		return;
	process.bias = (ulong)&ftpatch_config - (ulong)ftpatch_config.self;
	process.pid = (u32)syscall6(SYS_getpid, 0, 0, 0, 0, 0, 0);
	process.path = environment(envp, "FTPATCH_TRACE");
	size = environment(envp, "FTPATCH_TRACE_SIZE");
	process.size = size ? size_of(size) : 0;
	if (process.size < LEAST)
		process.size = ftpatch_config.size;
	if (ftpatch_config.tracer != TRACER_USER)
		process.hz = ticks_hz() ?: measured_hz();
	thread_pointer_known(hwcap2, interpreter != 0);

	stride = sizeof(struct thread) + (ASIDE + ftpatch_config.depth) * sizeof(struct frame);
	stride = (stride + PAGE - 1) & ~(PAGE - 1);
	process.most = ROOM / stride < THREADS ? ROOM / stride : THREADS;
	region = (char *)mmap_(0, process.most * stride, PROT_RW, MAP_PRIVATE_ANONYMOUS_NORESERVE, -1);
	known = (char *)mmap_(0, sizeof(struct known_threads), PROT_RW,
			      MAP_PRIVATE_ANONYMOUS_NORESERVE, -1);
	if (failed((long)region) || failed((long)known))
		return;
	/* Linux has it since 4.14; qemu-user before 8 takes any advice, and does nothing. */
	process.wiped = !failed(advise(known, MADV_WIPEONFORK)) && failed(advise(known, -1));
	process.region = region;
	process.stride = stride;
	process.known = (struct known_threads *)known;
	process.known->here = 1;
	if (ftpatch_config.tracer != TRACER_USER) {
		process.header = make_file(process.path, 0);
		if (!process.header)
			return;
	}
	barrier();
	process.ready = 1;
}

/* A child of fork: it has a file of its own, and the frames of the thread that called fork, whose
 * entries are in the parent's file and whose exits nobody waits for. */
REGISTERS void trace_forked(void)
{
	ulong tp = thread_pointer();
	struct thread *t;
	struct frame *frame;
	u32 none = 0;

	if (!__atomic_compare_exchange_n(&process.starting, &none, 1, 0, __ATOMIC_ACQUIRE,
					 __ATOMIC_RELAXED))
		return; /* another thread of the child is at it */
	process.header = 0;
	process.pid = (u32)syscall6(SYS_getpid, 0, 0, 0, 0, 0, 0);
	process.early = 0;
	for (t = process.threads; t; t = t->next) {
		t->pos = t->end = 0;
		t->number = t->full = t->busy = t->nested = 0;
		for (frame = t->low; frame < t->top; frame++)
			if (t->tp == tp)
				frame->func = 0;
			else
				frame->slot = 0;
		if (t->tp == tp) {
			struct known *known = known_at(tp);

			t->tid = process.tid_offset ? id_at(tp) : process.pid; /* of a raw clone, too */
			known->thread = t;
			known->tp = tp;
		} else {
			t->tp = 0;
			t->top = t->bottom;
		}
	}
	if (ftpatch_config.tracer != TRACER_USER)
		process.header = make_file(process.path, 1);
	process.starting = 0;
	__atomic_store_n(&process.known->here, 1, __ATOMIC_RELEASE);
}

/* At exit: a whole trace says so. No system call: the program may have given them up. */
void trace_ended(void)
{
	if (process.header && process.known->here) {
		process.header->ended_ticks = ticks();
		process.header->flags |= TRACE_ENDED;
	}
}
