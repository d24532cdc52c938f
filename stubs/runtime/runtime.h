/* SPDX-License-Identifier: MIT */
/* Shared by all parts of the runtime: the configuration, the process, its threads.
 *
 * None of it calls libc, uses libc's state, or has thread-local storage of its own: a thread is
 * identified by its thread pointer. Only start.c and file.c, with what they call, make system
 * calls: once per process, and once for each step by which its file grows.
 */
#ifndef FTPATCH_RUNTIME_H
#define FTPATCH_RUNTIME_H

#include "trace.h"

typedef unsigned long ulong;

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define barrier() __asm__ __volatile__("" ::: "memory")

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define BIG_ENDIAN_
#endif

#include "arch.h"

/* Debuggers read .debug_frame: the program's .eh_frame has no room for more. An architecture may have no
 * .eh_frame. */
#ifndef NO_EH_FRAME
__asm__(".cfi_sections .eh_frame, .debug_frame");
#endif

#ifndef MAP_NORESERVE_ /* an architecture may have another */
#define MAP_NORESERVE_ 0x4000
#endif
#define SIGBUS 7 /* on every architecture */
#define SIGSEGV 11
#define THREADS 4096 /* thread pointers told apart; a power of two */
#ifndef ROOM
#define ROOM ~0ul /* address space for their ret_stacks (bytes) */
#endif
#ifndef CODE_PLACE
#define CODE_PLACE ~0ul /* bits of an address of code that say where it is */
#endif
#define MAIN_STACK (8ul << 20) /* bytes; a stack this close to the process's is the first thread's */
#define ASIDE 256    /* unwound frames kept per thread, in case they come back */

#define STUB_MAGIC "FTPATCHSTUB\0v1"

/* What the program may give up through seccomp. */
enum gives_up { GIVES_UP_CLOCK = 1, GIVES_UP_CALLS = 2 };

/* Filled in by ftpatch when it injects the stub; all addresses are link addresses. With TRACE_ATTACHED
 * it came into a running process: trace_start() is called there, and what the runtime may change of the
 * process (the actions of signals, its exit) stays as it is. With TRACE_LIBRARY it is in a shared library,
 * whose first initializer calls library_start(), and whose last finalizer trace_ended(). */
struct stub_config {
	char magic[16];
	u64 self;     /* of this struct */
	u64 entry;    /* the program's own entry point */
	u64 base;     /* what `func` of events is relative to */
	u64 size;     /* bytes of the trace file, unless the environment says otherwise */
	u32 depth;    /* entries of a ret_stack */
	u32 machine;  /* e_machine */
	u32 tracer;   /* enum trace_tracer */
	u32 flags;    /* enum trace_flags */
	u32 profile;  /* bytes of a profile's chunk, a power of two */
	u16 clock;    /* enum gives_up */
	u16 signal;   /* that switches recording, 0: none */
	u8 image_id[32];
	u64 caller;   /* a user's ftrace_caller or ftrace_regs_caller; of watches struct watch_rule[4] ... */
	u64 returned; /* ... and ftrace_return, or ftrace_regs_return, 0: none */
	u64 libraries; /* table of libraries traced as well (libraries.h), 0: none */
	u64 debug;     /* value of DT_DEBUG in the program's dynamic table */
	u64 probes;    /* struct probe_table (probes.h) or struct trace_watch[4], 0: none */
	u64 hooks;     /* struct hook_table (hooks.h), 0: none */
	u64 hz;        /* ticks per second, 0: to be measured */
	u64 watches;   /* TRACE_WATCHES: struct trace_watch[4] */
	u64 ended;     /* TRACE_LIBRARY: its DT_FINI, as `entry` is its DT_INIT; 0: none */
};

extern const struct stub_config ftpatch_config __attribute__((visibility("hidden")));

/* A call whose return is pending. `slot` identifies the frame: where its return address is (x86),
 * or the stack pointer on entry (arm64). No two live frames share one, except tail calls: there,
 * all but the first have return_to_handler as their return address. */
struct frame {
	ulong slot; /* 0: none */
	ulong ret;
	u64 func; /* shifted as in an event; 0: of a fork's parent, not to be recorded */
	u64 calltime;
	u64 childtime; /* of a profile; of probes the number, which a fork's child keeps; a user's data */
};

/* return_to_handler's unwind information depends on the layout up to `next`. */
struct thread {
	struct frame *top;  /* end of the ret_stack's frames */
	struct frame *low;  /* ASIDE unwound frames, directly followed by ... */
	struct thread *next;
	struct frame *bottom; /* ... the ret_stack */
	struct frame *limit;  /* end of the ret_stack's space */
	u64 *pos, *end;       /* of the chunk */
	u64 *stored;          /* there, the end of the longest event that was begun; 0: of one word */
	u64 base;             /* ticks */
	ulong tp;
	ulong busy;           /* slot of the call that the tracer is handling, 0: none */
	u32 tid;
	u32 number;           /* of its next chunk */
	u32 nested;           /* consecutive calls ignored because of `busy` */
	u32 full;             /* no chunk was left; of a ring: for so many events none is looked for */
	u32 elsewhere;        /* its chunks are in process.overflow, with numbers of their own */
	u32 under;            /* open frames of the threads it stands in for */
	struct thread *from;  /* the thread it stands in for (nested.c) */
	struct thread *spare; /* its stand-in, once one was needed */
#ifdef REGS
	u64 overrun, missed;  /* calls, as in struct fgraph_call */
#endif
	struct trace_chunk *chunk; /* of a ring: the one it holds, 0: none */
	struct trace_account *account; /* what it lost, once it did */
	u32 serial;           /* of the threads of a ring, or of files that are rotated */
	u32 waits;            /* for another thread that begins a file: it has no place in any */
	u32 stuck;            /* in a file that was left without it, until it takes its next chunk */
#ifdef TOGETHER
	struct thread *whole; /* of a stream: whose it is */
	struct thread *streams[KINDS - 1]; /* stand for it where events of other kinds than calls are
	                                      stored, and have no frames */
	u32 kind;
#endif
};

/* In a frame's `func`, of which an event needs none: it is a traced call's, not a probe's. */
#ifdef TOGETHER
#define TRACED 4u
#else
#define TRACED 1u /* there are no others */
#endif

struct known {
	ulong tp;
	struct thread *thread;
};

/* In memory that a forked child finds zeroed (MADV_WIPEONFORK). */
struct known_threads {
	ulong here; /* 1; 0 in a child */
	struct known slot[THREADS];
};

struct process {
	struct known_threads *known;
	struct trace_header *header; /* of the file; NULL: not recording */
	struct trace_header *overflow; /* of another process's file, if this one's is small */
	ulong bias;
	struct thread *threads; /* list; read by unwinders */
	char *region;           /* structs thread with their frames, every `stride` bytes */
	ulong stride;
	u32 count;              /* number in use */
	u32 most;               /* maximum number, THREADS or less */
	int tid_offset;         /* from the thread pointer to the thread's id, 0: unknown */
	u32 ready;              /* the region is mapped */
	u32 wiped;              /* forked children do find known_threads zeroed */
	u32 stopped;
	u32 starting;           /* process id of the forked child being set up */
	u32 pid;
	ulong page;             /* bytes */
	u64 early;              /* calls before setup */
	u64 told;               /* those that are in this process's header, or its parents' */
	ulong stack;            /* start of the first thread's */
	u32 grows;              /* the file is allocated in steps ... */
	u32 stores;             /* ... by stores to it, without system calls */
	u32 full;               /* one of these found the disk full */
	u32 overflowing;        /* something did not fit into this one's */
	u32 flags;              /* enum trace_flags, for the next file */
	u32 serials;            /* of threads that took chunks of a ring */
	u32 rotate;             /* full files that are kept, 0: there is but one file */
	u32 rotating;           /* process id of whoever begins a file: a forked child does not */
	u64 size;
	u64 hz;
	ulong phdr, phnum;      /* AT_PHDR, AT_PHNUM */
	ulong own_page, own_pages; /* the first of the pages that the program cannot write, and their number */
	u64 flushed;            /* ticks at the last search for ended threads that hold instances */
	struct trace_probe *states; /* probes' `counted`, `first` and `active`: of the file, or if it rotates,
	                               of memory that all of them have in common */
#ifdef REGS
	u64 ticks, nanoseconds; /* when times began */
	u32 mult;               /* nanoseconds of a tick, as a fraction */
#endif
};

extern struct process process __attribute__((visibility("hidden")));

void return_to_handler(void) __attribute__((visibility("hidden")));

/* What is in a register at a call or a signal is pushed, and stays on that stack for long. `undo` has
 * to take such a word for the return address of a call that is pending on a copied stack, and leaves
 * the tracer mapped. So architectures whose processes are traced keep return_to_handler out of
 * registers, as far as they can. */
#ifndef KEEPS_HANDLER_OUT
static inline int is_handler(const ulong *at)
{
	return *at == (ulong)return_to_handler;
}
static inline void put_handler(ulong *at)
{
	*at = (ulong)return_to_handler;
}
#endif

/* start.c */
void trace_start(ulong *sp);
REGISTERS void trace_forked(void);
void trace_ended(void);

/* in_library.c */
void library_start(ulong argc, char **argv, char **envp);

/* trap.c */
void traps_caught(void);

/* clock.c */
void clock_kept(void);

#endif
