/* SPDX-License-Identifier: MIT */
/* What the program and its libraries ask the kernel about signals, by whichever function: in memory,
 * the few system calls that can change what becomes of ours are led to the runtime. */
#ifndef FTPATCH_LEAD_H
#define FTPATCH_LEAD_H

#include "threads.h"

/* The registers of a system call, and what becomes of it. */
struct asked {
	long number, args[6];
	ulong done; /* 1: args[0] of arm64, number of x86 is the result; 0: it is made with these */
	ulong back; /* into the stub of its site */
};

/* A system call that is led: `size` bytes from `from` on become a jump, in place of which they run in a
 * stub with all that follows up to `call`, the instruction itself. */
struct lead {
	const u8 *from, *call;
	u32 size;
	u32 whole; /* the instruction too */
};

#define LEAD_STUB 192 /* bytes, at most */

/* ARCH/lead.c. Of code that is in memory; what is written is to be at another address. */
int lead_found(const u8 *start, const u8 *end, const u8 **at, struct lead *lead);
void lead_stub(u8 *to, ulong address, const struct lead *lead);
void lead_jump(u8 *to, ulong address, ulong target);
ulong lead_behind(ulong back); /* the instruction behind the call, by the way back into its stub */
u32 lead_linker(u8 *to, const u8 *at); /* the stub of the linker's breakpoint; 0: it cannot be led */

/* ARCH/lead.S: from a stub. */
void ftrace_asked(void) __attribute__((visibility("hidden")));

/* lead.c */
void calls_led(void);
REGISTERS void ftrace_linked(void) __attribute__((visibility("hidden")));

/* hooks.c */
REGISTERS void signal_asked(struct asked *call) __attribute__((visibility("hidden")));
int is_asked(ulong number);

#endif
