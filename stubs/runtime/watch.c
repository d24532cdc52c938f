// SPDX-License-Identifier: MIT
/* Watched variables: hardware breakpoints, which the kernel turns into a SIGTRAP for the thread
 * that hit them (perf_event_open(2), `sigtrap`). They trap after the instruction. */
#include "text.h"
#include "watch.h"

#define TYPE_BREAKPOINT 5 /* PERF_TYPE_BREAKPOINT */
#define TYPE_WRITE 2      /* HW_BREAKPOINT_W */
#define INHERIT (1ull << 1)
#define EXCLUDE_KERNEL (1ull << 5)
#define EXCLUDE_HV (1ull << 6)
#define REMOVE_ON_EXEC (1ull << 36)
#define SIGTRAP_ (1ull << 37)
#define FLAG_CLOEXEC 8 /* PERF_FLAG_FD_CLOEXEC */
#define PR_GET_SECCOMP 21
#define PR_SET_DUMPABLE 4
#define FILTERED 2 /* SECCOMP_MODE_FILTER */
#define CLONE_VFORK 0x4000
#define WALL 0x40000000 /* __WALL */
#define EMFILE 24
#define ESTALE 116
#define TRAP_PERF 6
#define FLAG_LATE 1 /* TRAP_PERF_FLAG_ASYNC */
#define EVENT_WORDS 5 /* without a stack */
#define OURS 0x6674706174636800ull /* "ftpatch", and the number of the watch */

/* struct perf_event_attr up to sig_data (PERF_ATTR_SIZE_VER7). */
struct attributes {
	u32 type, size;
	u64 config, period, sample_type, read_format, flags;
	u32 wakeup, bp_type;
	u64 bp_addr, bp_len;
	u64 unused[6];
	u64 data;
};

extern const char runtime_end[] __attribute__((visibility("hidden")));

static u64 seen[WATCHES];     /* each one's value at the last look */
static u32 refusal[WATCHES]; /* errno */
u32 descriptors[WATCHES];    /* of their events, 0: none */

static ulong address_of(u32 number)
{
	return (ulong)(laid_watch(number)->address + watch_above[number] + process.bias);
}

/* A variable's bytes as a number. */
static u64 value_at(u32 number)
{
	const volatile void *at = (const volatile void *)address_of(number);

	switch (laid_watch(number)->length) {
	case 1:
		return *(const volatile u8 *)at;
	case 2:
		return *(const volatile u16 *)at;
	case 4:
		return *(const volatile u32 *)at;
	default:
		return *(const volatile u64 *)at;
	}
}

int watches_any(void)
{
	u32 i, any = 0;

	for (i = 0; i < WATCHES; i++)
		any |= laid_watch(i)->type;
	return any != 0;
}

/* Fill in the header of a new file: a forked child's with what its parent found. */
void watches_told(struct trace_header *header)
{
	struct trace_watch *told = watches_in(header);
	const u64 *from = (const u64 *)laid_watch(0);
	u64 *to = (u64 *)told;
	u32 i;

	for (i = 0; i < WATCHES * sizeof(*told) / sizeof(*to); i++)
		to[i] = from[i];
	for (i = 0; i < WATCHES; i++) {
		told[i].refusal = refusal[i];
		told[i].address += watch_above[i];
	}
#ifndef PROBES
	header->probes = WATCHES;
#endif
}

/* The descriptor must stay open, out of the way of the program's own, which count from 0. So it
 * goes to the end of a table of the usual size: a larger table would slow down every fork. A
 * program with a small one may need all of it. */
long descriptor_kept(long fd)
{
	long at, kept = -1;

	if (failed(fd))
		return fd;
	for (at = 1020; at > 20 && failed(kept); at = at / 2 - 2)
		kept = syscall6(SYS_fcntl, fd, F_DUPFD_CLOEXEC, at, 0, 0, 0);
	syscall6(SYS_close, fd, 0, 0, 0, 0, 0);
	return failed(kept) ? -EMFILE : kept;
}

static u32 set(u32 number)
{
	const struct trace_watch *watch = laid_watch(number);
	struct attributes wanted = {.type = TYPE_BREAKPOINT, .size = sizeof(wanted), .period = 1};
	long fd;

	/* Forked children inherit them: nobody could set them there. */
	wanted.flags = INHERIT | EXCLUDE_KERNEL | EXCLUDE_HV | REMOVE_ON_EXEC | SIGTRAP_;
	wanted.bp_type = watch->type;
	wanted.bp_addr = address_of(number);
	wanted.bp_len = watch->length;
	wanted.data = OURS | number;
	fd = syscall6(SYS_perf_event_open, (long)&wanted, 0, -1, -1, FLAG_CLOEXEC, 0);
	fd = descriptor_kept(fd);
	if (!failed(fd))
		descriptors[number] = (u32)fd;
	return failed(fd) ? (u32)-fd : 0;
}

/* An existing sandbox, such as a service manager's, may kill a process for the call. So a child
 * tries it, and its death goes unnoticed: it has no exit signal, and leaves no core. */
static int forbidden(void)
{
	int status = 0;
	long pid, ret;

	if (syscall6(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0, 0) != FILTERED)
		return 0;
	pid = syscall6(SYS_clone, CLONE_VFORK, 0, 0, 0, 0, 0);
	if (!pid) {
		syscall6(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0, 0);
		syscall6(SYS_perf_event_open, 0, 0, -1, -1, 0, 0); /* EFAULT if it gets that far */
		for (;;)
			syscall6(SYS_exit_group, 0, 0, 0, 0, 0, 0);
	}
	if (failed(pid))
		return 1;
	do
		ret = syscall6(SYS_wait4, pid, (long)&status, WALL, 0, 0, 0);
	while (ret == -EINTR);
	return ret != pid || status;
}

/* Before the program begins. The reason for each that cannot be set is recorded in the trace. */
void watches_set(void)
{
	u32 i, any = 0, no = forbidden() ? EPERM : 0;

	for (i = 0; i < WATCHES; i++) {
		if (!laid_watch(i)->type)
			continue;
		if (watch_found(i))
			seen[i] = value_at(i);
		else
			refusal[i] = ESTALE;
	}
	for (i = 0; i < WATCHES; i++) {
		if (!laid_watch(i)->type)
			continue;
		refusal[i] = refusal[i] ?: no ?: set(i);
		any |= !refusal[i];
	}
	if (process.header)
		watches_told(process.header);
	if (any)
		traps_caught();
}

/* Record an access. If it is lost, or not asked for, the next one still shows the value it left. */
static void accessed(u32 number, const struct trap_info *info, const struct context *context)
{
	ulong slot = context->sp;
	struct thread *t = begun(slot), *to = t ? stream(t, KIND_ACCESSES) : 0;
	const struct watch_rule *rule = laid_rule(number);
	u32 late = info->flags & FLAG_LATE, room = EVENT_WORDS, n = EVENT_WORDS;
	struct trace_header *header;
	u64 now, after, before, *at = 0;

	now = ticks();
	after = value_at(number); /* for `rw-` this traps again */
	before = __atomic_exchange_n(&seen[number], after, __ATOMIC_RELAXED);
	if (!process.header || is_off())
		goto out;
	if (rule->filter) {
		u64 words[WATCH_WORDS] = {
			before, after, late ? 0 : context->ip - process.bias, t ? t->tid : 0,
		};

		if (!watch_passes(number, words))
			goto out;
	}
	if (rule->flags & WATCH_CALLS)
		room += 1 + CALLS_REGISTERS + CALLS_WORDS;
	if (t && !(at = to ? event_at(to, now, room) : 0))
		lost(t, LOST_FULL);
	if (!at || !place_holds(to, at)) {
		if ((header = process.header))
			__atomic_fetch_add(&watches_in(header)[number].missed, 1, __ATOMIC_RELAXED);
		goto out;
	}
	at[1] = context->ip;
	at[2] = before;
	at[3] = after;
	at[4] = cpu_number() | (u64)late << 32;
	if (rule->flags & WATCH_CALLS) {
		struct registers regs;

		registers_at(context, &regs);
		n += stack_taken(at + n, t, &regs);
	}
	event_put(to, at, n,
		  event(to, now, (u64)number << TYPE_BITS, (enum trace_event)EVENT_ACCESS));
	if ((header = process.header)) /* it may be another one by now */
		__atomic_fetch_add(&watches_in(header)[number].hits, 1, __ATOMIC_RELAXED);
out:
	if (t)
		end(t, slot);
}

/* 0 for a SIGTRAP that is not ours. */
int watch_trapped(const struct trap_info *info, const struct context *context)
{
	if (info->code != TRAP_PERF || (info->data & ~0xffull) != OURS ||
	    (info->data & 0xff) >= WATCHES)
		return 0;
	/* accessed() itself, reading the value. */
	if (context->ip - (ulong)&ftpatch_config >= (ulong)runtime_end - (ulong)&ftpatch_config)
		accessed((u32)(info->data & 0xff), info, context);
	return 1;
}

#ifndef PROBES
/* No site calls it: entry.S needs it, whose return_to_handler is never reached. */
REGISTERS void trace_return(ulong *place, ulong slot)
{
	(void)place;
	(void)slot;
}
#endif
