/* The program's own use of a signal, beside ours. The kernel has one handler for it, and kills a process
 * that a breakpoint stops while the signal is blocked. So what the program asks libc for
 * is kept here, and never reaches the kernel: its action, and that it blocks the signal. */
#include "hooks.h"

#define SIG_UNBLOCK 1
#define SIG_SETMASK 2
#define SA_SIGINFO 4
#define SA_RESTART 0x10000000
#define SA_RESETHAND (int)0x80000000
#define SIG_DFL ((void *)0)
#define SIG_IGN ((void *)1)
#define SIG_ERR ((void *)-1)
#define PROT_RW 3
#define PROT_R 1
#define OUR_BIT (1ull << (OUR_SIGNAL - 1))
#define SIGNALS 65

typedef int (*sigaction_)(int, const struct user_action *, struct user_action *);
typedef void *(*signal_)(int, void *);
typedef int (*sigmask_)(int, const u64 *, u64 *);

static struct user_action own;  /* the program's action for it */
static u8 masks[SIGNALS];       /* which of its actions block it */
static ulong real[HOOKS];       /* what the program would have called */

static inline const struct hook_table *hook_table(void)
{
	return linked(struct hook_table, ftpatch_config.hooks);
}

static void copy(struct user_action *to, const struct user_action *from)
{
	u32 i;

	to->handler = from->handler;
	for (i = 0; i < sizeof(to->mask) / sizeof(to->mask[0]); i++) {
		to->mask[i] = from->mask[i];
		barrier(); /* or gcc calls memcpy */
	}
	to->flags = from->flags;
	to->restorer = from->restorer;
}

/* The dynamic linker seals whole pages. */
static int is_sealed(const struct hook *hook)
{
	ulong page = (ulong)(hook->place + process.bias) & -process.page;
	const struct hook_table *table = hook_table();

	return page >= (((ulong)(table->sealed + process.bias)) & -process.page) &&
	       page < (((ulong)(table->sealed_end + process.bias)) & -process.page);
}

/* A slot of the GOT that is bound when it is first used holds something else from then on. */
static void slots_kept(u32 which, ulong wrapper)
{
	u32 i;

	for (i = 0; i < hook_table()->count; i++) {
		const struct hook *hook = &hook_table()->hook[i];
		volatile ulong *slot = (volatile ulong *)(ulong)(hook->place + process.bias);

		if (hook->which != which || hook->kind != HOOK_SLOT || *slot == wrapper ||
		    is_sealed(hook))
			continue;
		real[which] = *slot;
		*slot = wrapper;
	}
}

#ifdef WATCH
ulong hooked_real(enum hook_which which)
{
	return real[which];
}

void hooked_kept(enum hook_which which, ulong wrapper)
{
	slots_kept(which, wrapper);
}
#endif

LANDING int hooked_sigaction(int signal, const struct user_action *new, struct user_action *old)
{
	struct user_action changed;
	int blocks, ret;

	if (signal == OUR_SIGNAL) {
		copy(&changed, &own);
		if (new)
			copy(&own, new);
		if (old)
			copy(old, &changed);
		return 0;
	}
	blocks = signal > 0 && signal < SIGNALS ? masks[signal] : 0;
	if (new) {
		copy(&changed, new);
		changed.mask[0] &= ~OUR_BIT;
	}
	ret = ((sigaction_)real[HOOK_SIGACTION])(signal, new ? &changed : 0, old);
	slots_kept(HOOK_SIGACTION, (ulong)hooked_sigaction);
	if (ret)
		return ret;
	if (new)
		masks[signal] = (new->mask[0] & OUR_BIT) != 0;
	if (old && blocks)
		old->mask[0] |= OUR_BIT;
	return 0;
}

LANDING void *hooked_signal(int signal, void *handler)
{
	void *old = own.handler, *ret;
	u32 i;

	if (signal != OUR_SIGNAL) {
		ret = ((signal_)real[HOOK_SIGNAL])(signal, handler);
		slots_kept(HOOK_SIGNAL, (ulong)hooked_signal);
		if (ret != SIG_ERR && signal > 0 && signal < SIGNALS)
			masks[signal] = 0;
		return ret;
	}
	own.handler = handler;
	own.flags = SA_RESTART;
	for (i = 0; i < sizeof(own.mask) / sizeof(own.mask[0]); i++) {
		own.mask[i] = 0;
		barrier();
	}
	return old;
}

/* Of a thread that is not known nothing is kept. */
static u32 *blocked(void)
{
	struct thread *t = current_thread();

	return t ? &t->blocked : 0;
}

static int masked(enum hook_which which, int how, const u64 *new, u64 *old)
{
	u32 *flag = blocked(), before = flag ? *flag & IS_BLOCKED : 0;
	u64 changed[16];
	u32 i;
	int ret;

	if (new) {
		for (i = 0; i < 16; i++) {
			changed[i] = new[i];
			barrier();
		}
		if (how != SIG_UNBLOCK)
			changed[0] &= ~OUR_BIT;
	}
	ret = ((sigmask_)real[which])(how, new ? changed : 0, old);
	if (ret || !flag)
		return ret;
	if (new && new[0] & OUR_BIT)
		*flag = how == SIG_UNBLOCK ? *flag & ~IS_BLOCKED : *flag | IS_BLOCKED;
	else if (new && how == SIG_SETMASK)
		*flag &= ~IS_BLOCKED;
	if (old && before)
		old[0] |= OUR_BIT;
	if (!(*flag & IS_BLOCKED) && *flag & IS_PENDING) {
		*flag &= ~IS_PENDING;
		signal_raised();
	}
	return 0;
}

LANDING int hooked_pthread_sigmask(int how, const u64 *new, u64 *old)
{
	int ret = masked(HOOK_PTHREAD_SIGMASK, how, new, old);

	slots_kept(HOOK_PTHREAD_SIGMASK, (ulong)hooked_pthread_sigmask);
	return ret;
}

LANDING int hooked_sigprocmask(int how, const u64 *new, u64 *old)
{
	int ret = masked(HOOK_SIGPROCMASK, how, new, old);

	slots_kept(HOOK_SIGPROCMASK, (ulong)hooked_sigprocmask);
	return ret;
}

/* One that no breakpoint of ours brought: what the program wants done. 0: it dies of it.
 * `sent`: by a process, so that it can wait or be ignored. */
int signal_passed_on(int signal, void *info, struct context *context, int sent)
{
	void *handler = own.handler;
	u32 *flag = blocked();
	u64 mask = (own.mask[0] | *signal_mask(context)) & ~OUR_BIT;

	if (flag && *flag & IS_BLOCKED) {
		if (sent)
			*flag |= IS_PENDING;
		return sent;
	}
	if (handler == SIG_DFL || handler == SIG_IGN)
		return handler == SIG_IGN && sent;
	if (own.flags & SA_RESETHAND)
		own.handler = SIG_DFL;
	syscall6(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, 0, sizeof(mask), 0, 0);
	if (own.flags & SA_SIGINFO)
		((void (*)(int, void *, void *))handler)(signal, info, context);
	else
		((void (*)(int))handler)(signal);
	return 1;
}

void hooks_set(void *inherited)
{
	ulong wrappers[HOOKS];
	int sealed;
	u32 i;

	own.handler = inherited == SIG_IGN ? SIG_IGN : SIG_DFL;
	if (!ftpatch_config.hooks)
		return;
	wrappers[HOOK_SIGACTION] = (ulong)hooked_sigaction;
	wrappers[HOOK_SIGNAL] = (ulong)hooked_signal;
	wrappers[HOOK_PTHREAD_SIGMASK] = (ulong)hooked_pthread_sigmask;
	wrappers[HOOK_SIGPROCMASK] = (ulong)hooked_sigprocmask;
#ifdef WATCH
	wrappers[HOOK_CLOSE] = (ulong)hooked_close;
	wrappers[HOOK_CLOSEFROM] = (ulong)hooked_closefrom;
	wrappers[HOOK_CLOSE_RANGE] = (ulong)hooked_close_range;
	wrappers[HOOK_DUP2] = (ulong)hooked_dup2;
	wrappers[HOOK_DUP3] = (ulong)hooked_dup3;
#endif
	for (i = 0; i < hook_table()->count; i++) {
		const struct hook *hook = &hook_table()->hook[i];
		ulong place = (ulong)(hook->place + process.bias), page = place & -process.page;

		if (hook->kind == HOOK_CODE) {
			real[hook->which] = place;
			continue;
		}
		real[hook->which] = *(ulong *)place;
		sealed = is_sealed(hook);
		if (sealed &&
		    syscall6(SYS_mprotect, (long)page, (long)process.page, PROT_RW, 0, 0, 0) < 0)
			continue;
		*(ulong *)place = wrappers[hook->which];
		if (sealed)
			syscall6(SYS_mprotect, (long)page, (long)process.page, PROT_R, 0, 0, 0);
	}
}
