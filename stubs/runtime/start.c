// SPDX-License-Identifier: MIT
/* Before the program runs: examine the process, create the trace file, and map memory for threads.
 * The runtime makes all its system calls here, except in a forked child, which does it all again. */
#include "file.h"
#include "instant.h"

#ifdef PROFILE
#include "profile.h"
#endif
#ifdef WATCH
#include "watch.h"
#endif
#ifdef REGS
#include "regs.h"
#endif
#ifdef PROBES
#include "mapped.h"
#endif
#include "libraries.h"

struct process process __attribute__((section(".data")));

#define AT_HWCAP2 26
#define AT_EXECFN 31
#define AT_PAGESZ 6
#define AT_BASE 7
#define AT_PHDR 3
#define AT_PHNUM 5
#define AT_SECURE 23
#define AT_SYSINFO_EHDR 33
#define MAP_PRIVATE_ANONYMOUS_NORESERVE (2 | 0x20 | MAP_NORESERVE_)
#define MADV_WIPEONFORK 18
#define SIG_SETMASK 2
#define RLIMIT_AS 9
#define SHARE 16  /* fraction of the address space */
#define DIGITS 12 /* maximum digits of a size */
#define SPIN 500000 /* nanoseconds to calibrate the clock for */

/* Parse "64M" to bytes; 0 if it is not a size. */
static u64 size_of(const char *text)
{
	u64 size = 0;
	u32 digits;

	for (digits = 0; *text >= '0' && *text <= '9' && digits < DIGITS; text++, digits++)
		size = size * 10 + (u64)(*text - '0');
	switch (*text | 0x20) {
	case 'g':
		size <<= 10; /* fall through */
	case 'm':
		size <<= 10; /* fall through */
	case 'k':
		size <<= 10;
		text++;
	}
	return *text ? 0 : size;
}

/* Size of the trace file (bytes). */
static u64 wanted_size(char **envp)
{
	const char *text = environment(envp, "FTPATCH_TRACE_SIZE");
	u64 size = text && *text ? size_of(text) : ftpatch_config.size;

	if (size >= LEAST)
		return size;
	say("FTPATCH_TRACE_SIZE", text, "not a size of 64K or more (such as 64M); using the program's default");
	return ftpatch_config.size;
}

/* Whether a word of the environment asks for something, by 1 or 0; without one it is `otherwise`. */
static u32 asked(char **envp, const char *name, u32 otherwise)
{
	const char *text = environment(envp, name);

	if (!text || !*text)
		return otherwise;
	if ((text[0] == '0' || text[0] == '1') && !text[1])
		return text[0] == '1';
	say(name, text, "neither 1 nor 0; using the program's default");
	return otherwise;
}

/* The configuration's flags, unless the environment says otherwise. */
static u32 wanted_flags(char **envp)
{
	u32 flags = ftpatch_config.flags & ~(u32)(TRACE_RING | TRACE_OFF) & ((1u << TRACE_KEEPS) - 1);

	if (ftpatch_config.tracer != TRACER_PROFILE && !(ftpatch_config.flags & TRACE_TOGETHER) &&
	    asked(envp, "FTPATCH_TRACE_RING", ftpatch_config.flags & TRACE_RING))
		flags |= TRACE_RING;
	if (asked(envp, "FTPATCH_TRACE_OFF", ftpatch_config.flags & TRACE_OFF))
		flags |= TRACE_OFF;
	return flags;
}

/* Address space we may take for one mapping (bytes): if it is limited, the program needs most of
 * it. */
static u64 space(void)
{
	ulong limit[2] = {~0ul, ~0ul};

	getrlimit_(RLIMIT_AS, limit);
	return limit[0] == ~0ul ? ~0ull : limit[0] / SHARE;
}

/* Ticks of the clock per second. */
static u64 measured_hz(void)
{
	struct instant begun = instant_now(), now;

	while (nanoseconds(MONOTONIC) - begun.nanoseconds < SPIN)
		;
	now = instant_now();
	return divide((now.ticks - begun.ticks) * 1000000000u, now.nanoseconds - begun.nanoseconds);
}

static long advise(void *known, int advice)
{
	return syscall6(SYS_madvise, (long)known, sizeof(struct known_threads), advice, 0, 0, 0);
}

/* Add the calls up to now to the header. A child's are those not in its parent's header: resetting
 * the count for it could lose those of its other threads. */
static void early_told(void)
{
	if (process.header)
		__atomic_fetch_add(&process.header->lost[LOST_EARLY], process.early - process.told,
				   __ATOMIC_RELAXED);
	process.told = process.early;
}

/* Reported if a trace was asked for, or memory is short. */
static void unmade(long ret, const char *wanted)
{
	char text[64];

	if (!wanted && ret != -ENOMEM)
		return;
	text[0] = 0;
	append(text, sizeof(text), "cannot create the trace file (errno ");
	append_number(text, sizeof(text), (u32)-ret);
	append(text, sizeof(text), "); nothing is recorded");
	say(wanted ? "FTPATCH_TRACE" : 0, wanted, text);
}

/* sp points to argc, as the kernel has put it there, or to a copy; `envp` may be a later environment. */
void process_started(ulong *sp, char **envp)
{
	ulong *aux, hwcap2 = 0, secure = 1, interpreter = 0;
#ifdef CLOCK_OF_VDSO
	ulong vdso = 0;
#endif
	const char *name = 0;
	ulong stride, most;
	u64 room;
	char *region, *known;
	long ret;

	if (process.pid)
		return;
	for (aux = sp + arguments_at(sp) + 2; *aux; aux++)
		;
	for (aux++; aux[0]; aux += 2) {
		if (aux[0] == AT_HWCAP2)
			hwcap2 = aux[1];
		else if (aux[0] == AT_SECURE)
			secure = aux[1];
		else if (aux[0] == AT_EXECFN)
			name = (const char *)aux[1];
		else if (aux[0] == AT_PAGESZ)
			process.page = aux[1];
		else if (aux[0] == AT_PHDR)
			process.phdr = aux[1];
		else if (aux[0] == AT_PHNUM)
			process.phnum = aux[1];
		else if (aux[0] == AT_BASE)
			interpreter = aux[1];
#ifdef CLOCK_OF_VDSO
		else if (aux[0] == AT_SYSINFO_EHDR)
			vdso = aux[1];
#endif
	}
#ifdef CLOCK_OF_VDSO
	clock_found(vdso);
#endif
	process.bias = (ulong)&ftpatch_config - (ulong)ftpatch_config.self;
#if defined(PROBES) && !defined(WATCH)
	traps_caught();
#endif
	if (secure) /* not for our user to record, or to choose where */
		return;
#ifdef WATCH
	if (!watches_any())
		return;
#endif
	if (ftpatch_config.tracer != TRACER_USER && !place_kept(envp, name))
		return;
	if (!(ftpatch_config.flags & TRACE_ATTACHED)) /* else sp is not on it */
		process.stack = (ulong)sp;
	process.pid = (u32)syscall6(SYS_getpid, 0, 0, 0, 0, 0, 0);
	room = space();
	if (ftpatch_config.tracer != TRACER_USER) {
		process.size = wanted_size(envp);
		process.flags = wanted_flags(envp);
		rotation_wanted(envp);
		if (process.size > room)
			process.size = room > LEAST ? room : LEAST;
		process.hz = ticks_hz() ?: ftpatch_config.hz ?: measured_hz();
	}
#ifdef REGS
	process.hz = ticks_hz() ?: measured_hz();
	regs_started();
#endif
#ifdef PROBES
	own_pages_found();
#endif
	if (ftpatch_config.clock & GIVES_UP_CLOCK)
		clock_kept();
	/* A library is initialized by a dynamic linker, though AT_BASE does not tell of one that was started
	 * as a program. */
	thread_pointer_known(hwcap2, interpreter != 0 || ftpatch_config.flags & TRACE_LIBRARY);

	stride = sizeof(struct thread) + (ASIDE + ftpatch_config.depth) * sizeof(struct frame);
	stride = (stride + PAGE - 1) & ~(PAGE - 1);
	most = ROOM < room ? ROOM / stride : (ulong)room / stride;
	process.most = most < THREADS ? most ?: 1 : THREADS;
	region = (char *)mmap_(0, process.most * stride, PROT_RW, MAP_PRIVATE_ANONYMOUS_NORESERVE, -1);
	known = (char *)mmap_(0, sizeof(struct known_threads), PROT_RW,
			      MAP_PRIVATE_ANONYMOUS_NORESERVE, -1);
	if (failed((long)region) || failed((long)known)) {
		say(0, 0, "no memory for the tracer; nothing is recorded");
		return;
	}
	/* Linux has had it since 4.14; qemu-user before 8 accepts any advice, and does nothing. */
	process.wiped = !failed(advise(known, MADV_WIPEONFORK)) && failed(advise(known, -1));
	process.grows = process.wiped && !(ftpatch_config.clock & GIVES_UP_CALLS);
	process.region = region;
	process.stride = stride;
	process.known = (struct known_threads *)known;
	process.known->here = 1;
	libraries_found();
	if (ftpatch_config.tracer != TRACER_USER) {
		ret = make_file(0);
		if (failed(ret)) {
			unmade(ret, environment(envp, "FTPATCH_TRACE"));
			return;
		}
		early_told();
		switch_kept(envp);
	}
	barrier();
	process.ready = 1;
	libraries_connected();
#ifdef WATCH
	watches_set();
#endif
}

/* Called from the process's first instructions, and before them by the dynamic linker where it is
 * hooked: sp points to argc; or in a process that runs, with a copy of what was there. */
void trace_start(ulong *sp)
{
	process_started(sp, (char **)(sp + 1) + *sp + 1);
}

/* A child's file. If it cannot have one, because it dropped privileges or there is no disk space,
 * it goes on in its parent's. If files do not grow, its own is small, and what does not fit goes to
 * the first process's, whose full size is on disk. */
static void file_forked(struct trace_header *parents)
{
	long ret;

	if (!process.grows && parents && !process.rotate) {
		if (!process.overflow)
			process.overflow = parents;
		process.overflowing = 0;
		process.size = LEAST;
	}
	if (parents)
		process.flags = (process.flags & ~(u32)TRACE_OFF) | (parents->off & OFF_NOW ? TRACE_OFF : 0);
	ret = make_file(1);
	if (!failed(ret) || !parents)
		return;
	parents->refusal = (u32)-ret;
	__atomic_fetch_add(&parents->children, 1, __ATOMIC_RELAXED);
	process.header = parents;
}

static void forked(u32 pid)
{
	ulong tp = thread_pointer();
	struct thread *t, *own = 0;
	struct trace_header *parents = process.header;
	struct frame *frame;

	rotation_forked(tp, parents);
	process.header = 0;
	process.pid = pid;
	for (t = process.threads; t; t = t->next) {
		t->pos = t->end = 0;
		t->chunk = 0; /* in its parent's file, where it goes on */
		t->account = 0;
		t->serial = 0;
		t->number = t->full = t->elsewhere = 0;
#ifdef REGS
		t->overrun = t->missed = 0;
#endif
		/* A handler that forked returns to the work it interrupted, and its frame. */
		if (t->tp != tp)
			t->busy = t->nested = 0;
		else if (t->top < t->limit)
			t->top->func = 0;
		for (frame = t->low; frame < t->top; frame++)
			if (t->tp == tp)
				frame->func = 0;
			else
				frame->slot = 0;
		if (t->tp == tp) {
			t->tid = process.tid_offset ? id_at(tp) : process.pid; /* after a raw clone
			                                                          as well */
			own = t;
		} else {
			t->tp = 0;
			t->top = t->bottom;
		}
	}
	if (ftpatch_config.tracer != TRACER_USER)
		file_forked(parents);
	if (own) { /* the first that was made, or its stand-in */
		struct known *known = known_at(tp);

		while (own->busy == HANDED_ON)
			own = own->spare;

		known->thread = own;
		known->tp = tp;
	}
	__atomic_store_n(&process.known->here, 1, __ATOMIC_RELEASE);
	early_told();
	process.starting = 0;
}

static void set_signals(const u64 *mask, u64 *old)
{
	syscall6(SYS_rt_sigprocmask, SIG_SETMASK, (long)mask, (long)old, sizeof(*mask), 0, 0);
}

/* A forked child gets a file of its own, and the frames of the thread that called fork, whose
 * entries are in the parent's file and whose exits are not recorded. A handler that interrupted
 * this would find half of it, and would keep fallocate() from finishing. */
REGISTERS void trace_forked(void)
{
	u64 all = ~(1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1)), old; /* except those of clock.c
	                                                                   and sigbus.c */
	u32 pid, other;

	set_signals(&all, &old);
	pid = (u32)syscall6(SYS_getpid, 0, 0, 0, 0, 0, 0);
	other = process.starting; /* pid: another thread of the child is doing it */
	if (!(process.known->here && process.pid == pid) && other != pid &&
	    __atomic_compare_exchange_n(&process.starting, &other, pid, 0, __ATOMIC_ACQUIRE,
					__ATOMIC_RELAXED))
		forked(pid);
	set_signals(&old, 0);
}

/* At exit: mark the trace complete. No system calls: the program may have given them up. */
void trace_ended(void)
{
	u64 now = ticks();

	if (!process.header || !process.known->here)
		return;
#ifdef PROFILE
	struct thread *t = current_thread();
	struct frame *frame;

	for (frame = t ? t->top : 0; t && frame > t->bottom; frame--)
		profile_left(t, frame - 1, now);
#endif
	if (process.header->pid != process.pid) /* it is the parent's */
		return;
	process.header->ended_ticks = now;
	process.header->flags |= TRACE_ENDED;
}
