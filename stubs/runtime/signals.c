// SPDX-License-Identifier: MIT
/* The program's own use of the signal that we use. The kernel has one handler for it, and kills a
 * process that hits a breakpoint while the signal is blocked. So the program's requests about it
 * (system_calls.c) are handled here, and never reach the kernel: its action, and blocking it. */
#include "system_calls.h"
#include "context.h"
#include "text.h"

#define SIG_UNBLOCK 1
#define SIG_SETMASK 2
#define SA_RESTORER 0x04000000ul
#define SA_RESETHAND 0x80000000ul
#define SIG_DFL ((void *)0)
#define SIG_IGN ((void *)1)
#define OUR_BIT (1ull << (OUR_SIGNAL - 1))
#define SIGNALS 65
#define MADV_WIPEONFORK 18
#ifndef IS_BEHIND
#define IS_BEHIND(context, place) ((context)->ip == (place))
#endif
#ifndef SYS_sigprocmask
#define SYS_sigprocmask -1 /* there is none, but in 32 bits */
#endif
#ifndef CALL_LIKE
#define CALL_LIKE(number) (number)
#endif
#define NEAR (1ul << 20) /* bytes; an address this close above is on the stack */

struct signals ftpatch_signals __attribute__((used));
static u8 masks[SIGNALS];  /* which of the program's actions block it */
static ulong kept;         /* action flags that this kernel knows */
static volatile ulong *here; /* nonzero in the process `own_pid` */
static u32 own_pid;
static u32 begun_blocked;  /* blocked in the first thread before we started */

static void copy(struct action *to, const struct action *from)
{
	to->handler = from->handler;
	to->flags = from->flags;
	barrier(); /* or gcc calls memcpy */
#ifndef NO_RESTORER
	to->restorer = from->restorer;
#endif
	to->mask = from->mask;
}

/* Whether eight bytes are readable: the kernel reads a mask before it finds nothing to do. */
static int readable(const void *at)
{
	return syscall6(SYS_rt_sigprocmask, -1, (long)at, 0, 8, 0, 0) != -EFAULT;
}

/* Anything that is not on the stack may be invalid. */
static int is_there(const void *at)
{
	ulong frame = (ulong)__builtin_frame_address(0);

	/* A stack at the end of 32 bits has small numbers near above it, modulo 2^32. */
	return ((ulong)at >= frame && (ulong)at - frame < NEAR) || readable(at);
}

/* The calling thread's state of the signal. It is independent of recording; a thread that takes
 * over another's entry starts with its own mask, which libc sets. */
static struct asker *asker(void)
{
	ulong tp = thread_pointer() | 1, none;
	struct asker *found;
	u32 i, at = (u32)(tp >> 12 ^ tp >> 6);

	for (i = 0; i < ASKERS; i++) {
		found = &ftpatch_signals.askers[(at + i) % ASKERS];
		none = 0;
		if (found->tp == tp ||
		    __atomic_compare_exchange_n(&found->tp, &none, tp, 0, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED) ||
		    none == tp)
			break;
	}
	if (i == ASKERS)
		found = &ftpatch_signals.askers[at % ASKERS]; /* more threads than entries */
	if (begun_blocked) {
		begun_blocked = 0;
		found->blocked |= IS_BLOCKED;
	}
	return found;
}

/* A child that shares our memory, but not our signals (vfork, posix_spawn), is about to exec: what
 * it does is not the program's doing. */
static int is_apart(void)
{
	return here && (u32)syscall6(SYS_getpid, 0, 0, 0, 0, 0, 0) != own_pid;
}

/* A forked child has its own memory, and finds `here` zeroed in it. */
static void process_known(void)
{
	if (here && !*here) {
		own_pid = (u32)syscall6(SYS_getpid, 0, 0, 0, 0, 0, 0);
		*here = 1;
	}
}

/* Linux has had WIPEONFORK since 4.14; qemu-user before 8 accepts any advice, and does nothing. */
static void process_told_apart(void)
{
	ulong page = mmap_(0, process.page, 3, 0x22 /* private, anonymous */, -1);

	if (failed((long)page))
		return;
	if (!failed(syscall6(SYS_madvise, (long)page, (long)process.page, MADV_WIPEONFORK, 0, 0, 0)) &&
	    failed(syscall6(SYS_madvise, (long)page, (long)process.page, -1, 0, 0, 0)))
		here = (volatile ulong *)page;
	process_known();
}

static long acted(int signal, const struct action *new, struct action *old)
{
	struct action changed;
	u8 blocks = 0;
	long ret;

	if (new && (!is_there(new) || !is_there((const char *)(new + 1) - 8)))
		return -EFAULT;
	if (signal == OUR_SIGNAL) {
		copy(&changed, &ftpatch_signals.own);
		if (old) { /* the kernel checks the address */
			ret = syscall6(SYS_rt_sigaction, signal, 0, (long)old, 8, 0, 0);
			if (ret)
				return ret;
		}
		if (new && !is_apart()) {
			copy(&ftpatch_signals.own, new);
			ftpatch_signals.own.flags &= kept;
		}
		if (old)
			copy(old, &changed);
		return 0;
	}
	if (signal > 0 && signal < SIGNALS)
		blocks = masks[signal];
	if (new) {
		copy(&changed, new);
		changed.mask &= ~OUR_BIT;
	}
	ret = syscall6(SYS_rt_sigaction, signal, new ? (long)&changed : 0, (long)old, 8, 0, 0);
	if (ret)
		return ret;
	if (new && !is_apart())
		masks[signal] = (new->mask & OUR_BIT) != 0;
	if (old && blocks)
		old->mask |= OUR_BIT;
	return 0;
}

/* `wide`: masks have 64 bits; else one word, which the kernel takes for the lower one. */
static long masked(int how, const u64 *new, u64 *old, int wide)
{
	u32 *flag, before;
	u64 asked = 0, given = 0;
	long ret;

	if (new && !is_there(new))
		return -EFAULT;
	flag = &asker()->blocked;
	before = *flag & IS_BLOCKED;
	if (new)
		asked = given = wide ? *new : *(const ulong *)new;
	if (new && how != SIG_UNBLOCK)
		given &= ~OUR_BIT;
	ret = syscall6(wide ? SYS_rt_sigprocmask : SYS_sigprocmask, how, new ? (long)&given : 0,
		       (long)old, 8, 0, 0);
	if (ret)
		return ret;
	if (old && before)
		*(ulong *)old |= (ulong)OUR_BIT;
	if (asked & OUR_BIT)
		*flag = how == SIG_UNBLOCK ? *flag & ~IS_BLOCKED : *flag | IS_BLOCKED;
	else if (new && how == SIG_SETMASK)
		*flag &= ~IS_BLOCKED;
	if (!(*flag & IS_BLOCKED) && *flag & IS_PENDING) {
		*flag &= ~IS_PENDING;
		signal_raised();
	}
	return 0;
}

/* A temporary mask for a call that waits, in args[which]: the kernel gets it without our signal.
 * `inside`: args[which] points to the mask and its size. */
static void waits(struct asked *call, u32 which, int inside)
{
	const ulong *pair = (const ulong *)call->args[which];
	const u64 *mask;
	struct asker *t = asker();
	struct lent_mask *lent;
	u32 *flag = &t->blocked;

	t->behind = 0;
	if (!pair || (inside && !is_there(pair)))
		return;
	mask = inside ? (const u64 *)pair[0] : (const u64 *)pair;
	if (!mask || !is_there(mask))
		return;
	if (!(*mask & OUR_BIT) && *flag & IS_PENDING && *flag & IS_BLOCKED) {
		*flag = 0;
		signal_raised();
		*flag |= IS_BLOCKED;
		LEAD_RESULT(call) = -EINTR;
		call->done = 1;
		return;
	}
	t->waits = *mask & OUR_BIT ? IS_BLOCKED : IS_OPEN;
	t->behind = lead_behind(call->back);
	if (!(*mask & OUR_BIT))
		return;
	lent = &t->masks[t->lent++ % 4];
	lent->bits = *mask & ~OUR_BIT;
	lent->mask = (ulong)&lent->bits;
	lent->size = inside ? pair[1] : 0;
	lent->from = (ulong)call->args[which];
	call->args[which] = inside ? (long)lent : (long)&lent->bits;
}

/* It waits for a signal that is already pending. */
static void taken(struct asked *call)
{
	const u64 *set = (const u64 *)call->args[0];
	struct trap_info *info = (struct trap_info *)call->args[1];
	u32 *flag = &asker()->blocked, i;

	if (!set || !is_there(set) || !(*set & OUR_BIT) || !(*flag & IS_PENDING))
		return;
	*flag &= ~IS_PENDING;
	if (info && is_there(info))
		for (i = 0; i < 16; i++)
			((volatile u64 *)info)[i] = i ? 0 : OUR_SIGNAL;
	LEAD_RESULT(call) = OUR_SIGNAL;
	call->done = 1;
}

/* The pending signals, including ours. */
static long pending(u64 *set, ulong size)
{
	long ret = syscall6(SYS_rt_sigpending, (long)set, (long)size, 0, 0, 0, 0);

	if (!ret && size == sizeof(*set) && asker()->blocked & IS_PENDING)
		*set |= OUR_BIT;
	return ret;
}

int is_asked(ulong number)
{
	number = CALL_LIKE(number);
	if (number == (ulong)SYS_sigprocmask)
		return 1;
	return number == SYS_rt_sigaction || number == SYS_rt_sigprocmask ||
	       number == SYS_rt_sigpending || number == SYS_rt_sigtimedwait ||
	       number == SYS_rt_sigsuspend ||
	       number == SYS_pselect6 || number == SYS_ppoll || number == SYS_epoll_pwait ||
	       number == SYS_epoll_pwait2 || number == SYS_io_pgetevents ||
	       number == SYS_io_uring_enter;
}

/* Handle requests before they reach the kernel. */
REGISTERS void signal_asked(struct asked *call)
{
	long *a = call->args, ret;

	if (!ftpatch_signals.taken)
		return;
	process_known();
	switch (CALL_LIKE(call->number)) {
	case SYS_rt_sigaction:
		ret = a[3] == 8 ? acted((int)a[0], (void *)a[1], (void *)a[2]) : -EINVAL;
		break;
	case SYS_rt_sigprocmask:
		ret = a[3] == 8 ? masked((int)a[0], (void *)a[1], (void *)a[2], 1) : -EINVAL;
		break;
	case SYS_sigprocmask:
		ret = masked((int)a[0], (void *)a[1], (void *)a[2], 0);
		break;
	case SYS_rt_sigpending:
		ret = pending((u64 *)a[0], (ulong)a[1]);
		break;
	case SYS_rt_sigsuspend:
		waits(call, 0, 0);
		return;
	case SYS_ppoll:
		waits(call, 3, 0);
		return;
	case SYS_epoll_pwait:
	case SYS_epoll_pwait2:
		waits(call, 4, 0);
		return;
	case SYS_io_uring_enter:
		if (a[5] == 8)
			waits(call, 4, 0);
		return;
	case SYS_pselect6:
	case SYS_io_pgetevents:
		waits(call, 5, 1);
		return;
	case SYS_rt_sigtimedwait:
		taken(call);
		return;
	default:
		return;
	}
	LEAD_RESULT(call) = ret;
	call->done = 1;
}

/* Deliver one that none of our breakpoints raised as the program asked. 0: it is fatal. `sent`: by
 * a process, so it can be blocked or ignored. */
int signal_passed_on(int signal, void *info, struct context *context, int sent)
{
	void *handler = ftpatch_signals.own.handler;
	struct asker *t = asker();
	u32 is_blocked = t->blocked & IS_BLOCKED;
	u64 mask = (ftpatch_signals.own.mask | *signal_mask(context)) & ~OUR_BIT;

	if (IS_BEHIND(context, t->behind))
		is_blocked = t->waits & IS_BLOCKED;
	if (is_blocked) {
		if (sent)
			t->blocked |= IS_PENDING;
		return sent;
	}
	if (handler == SIG_DFL || handler == SIG_IGN)
		return handler == SIG_IGN && sent;
	if (ftpatch_signals.own.flags & SA_RESETHAND)
		ftpatch_signals.own.handler = SIG_DFL;
	syscall6(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, 0, sizeof(mask), 0, 0);
#ifdef HANDS_ON
	hand_on(handler, ftpatch_signals.own.flags & SA_RESTORER ? ftpatch_signals.own.restorer : 0,
		signal, info, context);
#endif
	if (ftpatch_signals.own.flags & SA_SIGINFO)
		((void (*)(int, void *, void *))handler)(signal, info, context);
	else
		((void (*)(int))handler)(signal);
	return 1;
}

/* Let the program's handlers of other signals run with ours open, and when it is given back
 * (`opened` 0), as the program asked. Setting an action that ignores its signal would drop what
 * is pending of it; those need no mask. */
static void handlers_opened(int opened)
{
	struct action action;
	int signal;

	for (signal = 1; signal < SIGNALS; signal++) {
		if (signal == OUR_SIGNAL || syscall6(SYS_rt_sigaction, signal, 0, (long)&action, 8, 0, 0))
			continue;
		if (opened)
			masks[signal] = (action.mask & OUR_BIT) != 0;
		if (!masks[signal] || action.handler == SIG_DFL || action.handler == SIG_IGN)
			continue;
		action.mask = opened ? action.mask & ~OUR_BIT : action.mask | OUR_BIT;
		syscall6(SYS_rt_sigaction, signal, (long)&action, 0, 8, 0, 0);
	}
}

/* Called after the libraries' constructors; in a running process by a thread that blocks
 * everything, while all others are stopped, and system calls are redirected already. */
void signal_taken_over(const struct action *inherited, ulong flags_kept)
{
	u64 mask = OUR_BIT, before = 0;

	kept = flags_kept;
	copy(&ftpatch_signals.own, inherited);
	ftpatch_signals.own.mask &= ~OUR_BIT;
	process_told_apart();
	ftpatch_signals.taken = 1;
	if (ftpatch_config.flags & TRACE_ATTACHED) {
		handlers_opened(1);
		return;
	}
	calls_led();
	syscall6(SYS_rt_sigprocmask, SIG_UNBLOCK, (long)&mask, (long)&before, sizeof(mask), 0, 0);
	begun_blocked = (before & OUR_BIT) != 0;
}

/* The same way back. From now on what the program asks goes to the kernel. */
void signal_given_back(void)
{
	if (!ftpatch_signals.taken)
		return;
	handlers_opened(0);
	syscall6(SYS_rt_sigaction, OUR_SIGNAL, (long)&ftpatch_signals.own, 0, 8, 0, 0);
	ftpatch_signals.taken = 0;
	if (here)
		munmap_((ulong)here, process.page);
	here = 0;
}
