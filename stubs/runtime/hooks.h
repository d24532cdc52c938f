/* What of libc is called in another way: by slots of the GOT, or where its code is in the program. */
#ifndef FTPATCH_HOOKS_H
#define FTPATCH_HOOKS_H

#include "probes.h"

#define SIGTRAP 5

enum hook_which { HOOK_SIGACTION, HOOK_SIGNAL, HOOK_PTHREAD_SIGMASK, HOOK_SIGPROCMASK, HOOKS };

enum hook_kind {
	HOOK_SLOT, /* `place` is a slot */
	HOOK_CODE, /* the function's own first instructions are at `place`, and it jumps to us */
};

struct hook {
	u64 place; /* link address */
	u32 which, kind;
};

/* Of a thread's `blocked`. */
#define TRAP_BLOCKED 1u
#define TRAP_PENDING 2u

/* As libc has it: glibc and musl agree. */
struct user_action {
	void *handler;
	u64 mask[16];
	int flags;
	void *restorer;
};

/* hooks.c */
int hooked_sigaction(int signal, const struct user_action *new, struct user_action *old);
void *hooked_signal(int signal, void *handler);
int hooked_pthread_sigmask(int how, const u64 *new, u64 *old);
int hooked_sigprocmask(int how, const u64 *new, u64 *old);
int trap_passed_on(int signal, void *info, struct context *context, int sent);
void hooks_set(void *inherited);

/* trap.c */
void trap_raised(void);

#endif
