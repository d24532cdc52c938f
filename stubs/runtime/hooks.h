/* SPDX-License-Identifier: MIT */
/* The program's own use of our signal, and the libc functions redirected through slots of the GOT.
 * */
#ifndef FTPATCH_HOOKS_H
#define FTPATCH_HOOKS_H

#include "action.h"
#include "threads.h"

struct context;

#define SIGILL 4
#define SIGTRAP 5
#ifdef TRAP_BEHIND
#define OUR_SIGNAL SIGTRAP /* raised by int3, where no shorter instruction is undefined */
#elif defined(WATCH)
#define OUR_SIGNAL SIGTRAP /* raised by the kernel's events */
#else
#define OUR_SIGNAL SIGILL /* raised by undefined instructions: debuggers have SIGTRAP */
#endif

#ifndef TRAP_BEHIND
#define TRAP_BEHIND 0 /* bytes from a trap to where it leaves the program counter */
#endif

/* What comes with a signal (include/uapi/asm-generic/siginfo.h, 64 bits); code: above 0 where the
 * kernel itself sends it; from `data` on: of an event. */
struct trap_info {
	int signal, error, code, unused;
	ulong address;
	u64 data;
	u32 type, flags;
};

/* Of a thread's `blocked`, and of `waits`. */
#define IS_BLOCKED 1u
#define IS_PENDING 2u
#define IS_OPEN 2u

/* signals.c */
int signal_passed_on(int signal, void *info, struct context *context, int sent);
void signal_taken_over(const struct action *inherited, ulong flags_kept);
void signal_given_back(void);

#ifdef WATCH
enum hook_which {
	HOOK_CLOSE,
	HOOK_CLOSEFROM,
	HOOK_CLOSE_RANGE,
	HOOK_DUP2,
	HOOK_DUP3,
	HOOKS
};

struct hook {
	u64 place; /* link address of a slot */
	u32 which, unused;
};

/* ftpatch_config.hooks points to it. All link addresses. */
struct hook_table {
	u64 sealed, sealed_end; /* read-only by the time the program begins (PT_GNU_RELRO) */
	u32 count, unused;
	struct hook hook[];
};

/* slots.c */
void slots_set(void);
/* The function the program would have called; and, after each call, redirect the slot again. */
ulong hooked_real(enum hook_which which);
void hooked_kept(enum hook_which which, ulong wrapper);

/* descriptors.c. Hidden: otherwise their addresses would be those before injection. */
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
void traps_taken(void);

#endif
