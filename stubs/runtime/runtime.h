/* SPDX-License-Identifier: MIT */
/* What the parts of the runtime share: the configuration, the process, its threads.
 *
 * No part of it calls libc, uses its state, or has thread-local storage of its own: a thread is
 * found by its thread pointer. Nothing makes a system call but start.c and file.c with what they call:
 * once in a process, and one for each step by which its file grows.
 */
#ifndef FTPATCH_RUNTIME_H
#define FTPATCH_RUNTIME_H

/* Debuggers read .debug_frame: the program's .eh_frame has no room for more. */
__asm__(".cfi_sections .eh_frame, .debug_frame");

#include "trace.h"

typedef unsigned long ulong;

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define barrier() __asm__ __volatile__("" ::: "memory")

#include "arch.h"

#define SIGBUS 7 /* on every architecture */
#define SIGSEGV 11
#define THREADS 4096 /* thread pointers that are told apart; a power of two */
#ifndef ROOM
#define ROOM ~0ul /* bytes of address space for their ret_stacks */
#endif
#define MAIN_STACK (8ul << 20) /* bytes: what is so close to its begin is the first thread's */
#define ASIDE 256    /* frames of a thread that were left and may come back */

#define STUB_MAGIC "FTPATCHSTUB\0v1"

/* What the program may give up by seccomp. */
enum gives_up { GIVES_UP_CLOCK = 1, GIVES_UP_CALLS = 2 };

/* Filled in by ftpatch where the stub is laid into a file; all addresses are link addresses. */
struct stub_config {
	char magic[16];
	u64 self;     /* of this struct */
	u64 entry;    /* where the program itself begins */
	u64 base;     /* what `func` of events counts from */
	u64 size;     /* bytes of the trace file, if the environment does not say */
	u32 depth;    /* entries of a ret_stack */
	u32 machine;  /* e_machine */
	u32 tracer;   /* enum trace_tracer */
	u32 flags;    /* enum trace_flags */
	u32 profile;  /* bytes of a profile's chunk, a power of two */
	u32 clock;    /* enum gives_up */
	u8 image_id[32];
	u64 caller;   /* TRACER_USER: the user's ftrace_caller ... */
	u64 returned; /* ... and ftrace_return, 0 where there is none */
	u64 libraries; /* the table of libraries that are traced too (libraries.h), 0: none */
	u64 debug;     /* value of DT_DEBUG in the program's dynamic table */
	u64 probes;    /* struct probe_table (probes.h) or struct trace_watch[4], 0: none */
	u64 hooks;     /* struct hook_table (hooks.h), 0: none */
};

extern const struct stub_config ftpatch_config __attribute__((visibility("hidden")));

/* One call whose return is awaited. `slot` tells frames apart: where its return address lies (x86),
 * or the stack pointer on entry (arm64). No two live frames have the same, but those of tail calls:
 * there, all but the first have return_to_handler for a return address. */
struct frame {
	ulong slot; /* 0: none */
	ulong ret;
	u64 func; /* shifted as in an event; 0: of the parent of a fork, not to be recorded */
	u64 calltime;
	u64 childtime;
};

/* The layout up to `next` is known to return_to_handler's unwind information. */
struct thread {
	struct frame *top;  /* behind the last frame of the ret_stack */
	struct frame *low;  /* frames that were left, ASIDE of them, and right behind them ... */
	struct thread *next;
	struct frame *bottom; /* ... the ret_stack */
	struct frame *limit;  /* behind the last that it has room for */
	u64 *pos, *end;       /* of the chunk */
	u64 base;             /* ticks */
	ulong tp;
	ulong busy;           /* slot of the call that the tracer is working on, 0: it is not */
	u32 tid;
	u32 number;           /* of its next chunk */
	u32 nested;           /* calls in a row that were ignored because of `busy` */
	u32 full;             /* there was no chunk left */
	u32 elsewhere;        /* its chunks are of process.overflow, and numbered anew */
	u32 under;            /* frames that are open in those that it stands in for */
	struct thread *from;  /* it stands in for that one (nested.c) */
	struct thread *spare; /* what stands in for it, when it is needed */
};

struct known {
	ulong tp;
	struct thread *thread;
};

/* Lies in memory that a child of fork finds empty (MADV_WIPEONFORK). */
struct known_threads {
	ulong here; /* 1, and 0 in a child */
	struct known slot[THREADS];
};

struct process {
	struct known_threads *known;
	struct trace_header *header; /* of the file; NULL: nothing is recorded */
	struct trace_header *overflow; /* of another process's file, where this one's is a small one */
	ulong bias;
	struct thread *threads; /* list; read by unwinders */
	char *region;           /* structs thread with their frames, `stride` apart */
	ulong stride;
	u32 count;              /* of them in use */
	u32 most;               /* that there is room for, THREADS or less */
	int tid_offset;         /* from the thread pointer to the thread's id, 0: not known */
	u32 ready;              /* the region is there */
	u32 wiped;              /* a child of fork does find known_threads empty */
	u32 stopped;
	u32 starting;           /* process id of the child of fork that is being set up */
	u32 pid;
	ulong page;             /* bytes */
	u64 early;              /* calls before anything was set up */
	u64 told;               /* of them, those in the header of this process or of its parents */
	ulong stack;            /* where the first thread's begins */
	u32 grows;              /* the file is allocated by steps */
	u32 overflowing;        /* something had no room in it */
	u64 size;
	u64 hz;
	ulong phdr, phnum;      /* AT_PHDR, AT_PHNUM */
	u64 flushed;            /* ticks when threads that took instances with them were looked for */
};

extern struct process process __attribute__((visibility("hidden")));

void return_to_handler(void) __attribute__((visibility("hidden")));

/* start.c */
void trace_start(ulong *sp);
REGISTERS void trace_forked(void);
void trace_ended(void);

/* trap.c */
void traps_caught(void);

/* clock.c */
void clock_kept(void);

#endif
