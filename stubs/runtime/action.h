/* SPDX-License-Identifier: MIT */
/* A signal's action. */
#ifndef FTPATCH_ACTION_H
#define FTPATCH_ACTION_H

#include "runtime.h"

/* As in the kernel, which on some architectures always has handlers return by the vdso. */
struct action {
	void *handler;
	ulong flags;
#ifndef NO_RESTORER
	void *restorer;
#endif
	u64 mask;
};

#ifdef NO_RESTORER
#define ACTION(handler, flags, mask) {handler, flags, mask}
#else
#define ACTION(handler, flags, mask) {handler, flags, 0, mask}
#endif

#define SA_SIGINFO 4ul
#define SA_RESTART 0x10000000ul

static inline long act_on(int signal, const struct action *new, struct action *old)
{
	return syscall6(SYS_rt_sigaction, signal, (long)new, (long)old, sizeof(new->mask), 0, 0);
}

/* Without it the kernel has the handler return by the vdso. */
static inline void with_restorer(struct action *action)
{
#ifdef RESTORER
	action->restorer = RESTORER;
	action->flags |= 0x04000000; /* SA_RESTORER */
#else
	(void)action;
#endif
}

#ifndef LANDING
#define LANDING
#endif

#endif
