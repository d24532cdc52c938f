/* SPDX-License-Identifier: MIT */
/* What the program and its libraries ask the kernel about signals, through whatever function: the
 * few system calls that can affect ours are redirected to the runtime, in memory. */
#ifndef FTPATCH_SYSTEM_CALLS_H
#define FTPATCH_SYSTEM_CALLS_H

#include "hooks.h"

#define ASKERS 512

/* What a thread asked about our signal, by its thread pointer, made odd: 0 is free. */
struct asker {
	ulong tp;
	u32 blocked; /* IS_BLOCKED, IS_PENDING */
	u32 waits;   /* IS_BLOCKED while a call waits with a temporary mask ... */
	ulong behind; /* ... this instruction follows the call, 0: none */
	ulong lent;  /* index of the next of ... */
	struct lent_mask {
		ulong mask, size;
		u64 bits;
		ulong from; /* the program's argument */
	} masks[4];  /* ... the masks passed to the kernel instead */
};

/* What ftpatch reads and writes in a process that it has stopped, with no thread in the runtime
 * (ftpatch/process/own_signal.py). */
struct signals {
	u64 taken;         /* the signal is ours: else requests pass through */
	struct action own; /* the program's action for it */
	struct asker askers[ASKERS];
};

extern struct signals ftpatch_signals __attribute__((visibility("hidden")));

/* The registers of a system call, and its outcome. */
struct asked {
	long number, args[6];
	ulong done; /* 1: 1: the result is in args[0] (arm64) or number (x86); 0: make the call with
	                  these */
	ulong back; /* into the stub of its site */
};

/* A redirected system call: the `size` bytes at `from` become a jump, and run in a stub instead,
 * with everything that follows up to `call`, the instruction itself. */
struct lead {
	const u8 *from, *call;
	u32 size;
	u32 whole; /* including the instruction itself */
};

#define LEAD_STUB 192 /* maximum bytes */

/* ARCH/system_calls.c. They read code in memory; what they write will run at another address. */
int lead_found(const u8 *start, const u8 *end, const u8 **at, struct lead *lead);
void lead_stub(u8 *to, ulong address, const struct lead *lead);
void lead_jump(u8 *to, ulong address, ulong target);
ulong lead_behind(ulong back); /* after the call, by the return address in its stub */
u32 lead_linker(u8 *to, const u8 *at); /* the stub of the linker's breakpoint; 0: it cannot be
                                          redirected */

/* ARCH/system_calls.S: from a stub. */
void ftrace_asked(void) __attribute__((visibility("hidden")));

/* system_calls.c */
void calls_led(void);
REGISTERS void ftrace_linked(void) __attribute__((visibility("hidden")));

/* signals.c */
REGISTERS void signal_asked(struct asked *call) __attribute__((visibility("hidden")));
int is_asked(ulong number);

#endif
