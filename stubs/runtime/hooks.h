/* What of libc is called in another way: by slots of the GOT, or where its code is in the program. */
#ifndef FTPATCH_HOOKS_H
#define FTPATCH_HOOKS_H

#include "threads.h"

#define SIGILL 4
#define SIGTRAP 5
#ifdef WATCH
#define OUR_SIGNAL SIGTRAP /* of the kernel's events */
#else
#define OUR_SIGNAL SIGILL /* of instructions that there are not: debuggers have SIGTRAP */
#endif

enum hook_which {
	HOOK_SIGACTION,
	HOOK_SIGNAL,
	HOOK_PTHREAD_SIGMASK,
	HOOK_SIGPROCMASK,
#ifdef WATCH
	HOOK_CLOSE,
	HOOK_CLOSEFROM,
	HOOK_CLOSE_RANGE,
	HOOK_DUP2,
	HOOK_DUP3,
#endif
	HOOKS
};

enum hook_kind {
	HOOK_SLOT, /* `place` is a slot */
	HOOK_CODE, /* the function's own first instructions are at `place`, and it jumps to us */
};

struct hook {
	u64 place; /* link address */
	u32 which, kind;
};

/* ftpatch_config.hooks points to it. Link addresses. */
struct hook_table {
	u64 sealed, sealed_end; /* what can only be read when the program begins (PT_GNU_RELRO) */
	u32 count, unused;
	struct hook hook[];
};

/* What comes with a signal (include/uapi/asm-generic/siginfo.h, 64 bits); code: above 0 where the
 * kernel itself sends it; from `data` on: of an event. */
struct trap_info {
	int signal, error, code, unused;
	ulong address;
	u64 data;
	u32 type, flags;
};

/* Of a thread's `blocked`. */
#define IS_BLOCKED 1u
#define IS_PENDING 2u

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
int signal_passed_on(int signal, void *info, struct context *context, int sent);
void hooks_set(void *inherited);

#ifdef WATCH
/* What the program would have called; and behind each call: it is still led to the wrapper. */
ulong hooked_real(enum hook_which which);
void hooked_kept(enum hook_which which, ulong wrapper);

/* descriptors.c. Hidden: others' addresses would be those before they were laid in. */
#pragma GCC visibility push(hidden)
int hooked_close(int fd);
void hooked_closefrom(int low);
int hooked_close_range(u32 low, u32 high, int flags);
int hooked_dup2(int old, int new);
int hooked_dup3(int old, int new, int flags);
#pragma GCC visibility pop
#endif

/* trap.c */
void signal_raised(void);

#endif
