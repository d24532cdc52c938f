/* SPDX-License-Identifier: MIT */
/* The trace file, as programs write it and ftpatch/trace reads it. All numbers are in the byte order of the
 * machine that wrote it; which that is, `version` of the header tells.
 *
 *     | header, 4096 bytes | chunk | chunk | ...          each of chunk_size bytes, of one thread
 *
 * The file has its full size from the start, though not on the disk, and what was not written is
 * zero. So a program that is killed leaves all that it recorded, and a reader stops at the first word
 * of a chunk that is zero where an event should begin.
 *
 *     chunk: | struct trace_chunk, 32 bytes | event | event | ... | 0
 *
 * With TRACE_RING, chunks are used again when all are: those that were handed out first, but for the
 * ones that threads still store to. Such a chunk is cleared before it begins anew; meanwhile it is
 * CHUNK_CLEARED. What a thread has left are its latest chunks, without a gap.
 *
 * With TRACE_ROTATES, the process makes another file when all chunks are used, and threads take their
 * next ones there.
 *
 * A child of fork that cannot make a file of its own takes chunks of its parent's.
 *
 * An event begins with one 64-bit word; some types have further words after it.
 *
 *      63            31 30             3 2    0
 *     |     ticks      |      func      | type |
 *
 *     ticks   of the header's clock, since the chunk's base (or since the last EVENT_TIME)
 *     func    distance of the address after the site's call from the header's base (in a library: see
 *             struct trace_library); for EVENT_UNWOUND a number of frames
 */
#ifndef FTPATCH_TRACE_H
#define FTPATCH_TRACE_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed long long s64;

#define TRACE_MAGIC "FTPTRACE"
enum trace_format {
	TRACE_VERSION = 1,
	TRACE_VERSION_TOGETHER = 2, /* with TRACE_TOGETHER */
	TRACE_HEADER = 4096,
	TRACE_UNIT = 4096,
	CHUNK_MAGIC = 0x4b4e4843, /* "CHNK" */
	CHUNK_CLEARED = 0x524e4843, /* "CHNR": of a ring, about to be used again */
	CHUNK_SHIFT = 14,
	CHUNK = 1 << CHUNK_SHIFT, /* bytes; of a profile it is the whole table */
};

enum trace_event {
	EVENT_ENTRY = 1,      /* a function was called */
	EVENT_EXIT = 2,       /* it returned */
	EVENT_ENTRY_FROM = 3, /* called; next word: its return address in memory */
	EVENT_ENTRY_ARGS = 4, /* called; next six words: its arguments as integers */
	EVENT_EXIT_VALUE = 5, /* returned; next word: its value as an integer */
	EVENT_UNWOUND = 6,    /* the innermost `func` frames were left without a return: by longjmp,
	                         an exception, or a switch to another stack. In the last case they
	                         may yet come back and return: their EVENT_EXIT then comes while
	                         they are not open */
	EVENT_TIME = 7,       /* next word: absolute ticks, the base of what follows */
};

/* With TRACE_TOGETHER, events of one kind are in chunks of their own, whose `kind` tells which. Each is
 * read as if there were no others: types are the kind's own, and chunks are numbered apart. */
enum trace_kind {
	KIND_CALLS,    /* enum trace_event */
	KIND_HITS,     /* enum trace_probe_event */
	KIND_ACCESSES, /* enum trace_watch_event */
	KINDS,
};

/* TRACER_PROBES has these two. `func` is the probe's number; trace_probe.words words of values
 * follow. */
enum trace_probe_event {
	EVENT_HIT = 1,
	EVENT_RETURNED = 2, /* first the return address, and the ticks since the call */
};

/* TRACER_WATCH has this one. `func` is the watch's number; four words follow: the address after the
 * accessing instruction, in memory; the value before, and now; the CPU (all ones: unknown), and
 * TRACE_LATE. Behind them are, if the watch's text asks for them, the calls that led there, to be
 * unwound (enum trace_calls). */
enum trace_watch_event { EVENT_ACCESS = 1 };
enum trace_access {
	TRACE_LATE = 1ull << 32, /* SIGTRAP was blocked: the address is where it was unblocked */
};

enum trace_word {
	TYPE_BITS = 3,
	FUNC_BITS = 28,
	TICKS_SHIFT = TYPE_BITS + FUNC_BITS,
	TICKS_BITS = 64 - TICKS_SHIFT,
};

enum trace_tracer { TRACER_NOP = 0, TRACER_FUNCTION = 1, TRACER_GRAPH = 2, TRACER_PROFILE = 3, TRACER_USER = 4,
		    TRACER_PROBES = 5, TRACER_WATCH = 6 };

enum trace_flags {
	TRACE_ARGS = 1,    /* EVENT_ENTRY_ARGS and EVENT_EXIT_VALUE in place of ENTRY and EXIT */
	TRACE_ENDED = 2,   /* the program exited normally; ended_* are set */
	TRACE_STOPPED = 4, /* a return address was invalid: the tracer stopped and restored it */
	TRACE_NO_ROOM = 8, /* the disk was full before the file was: the reason for LOST_FULL */
	TRACE_SILENT = 16, /* no glibc, the only libc that calls us at exit: no TRACE_ENDED */
	TRACE_ATTACHED = 32, /* the process was running when the tracer came: no TRACE_ENDED either */
	TRACE_RING = 64,   /* the oldest chunks are used again when the file is full */
	TRACE_OFF = 128,   /* of a configuration only: recording begins switched off */
	TRACE_ROTATES = 256, /* when the file is full, its process goes on in another one: in all of them
	                        pid, ticks and realtime are the same, and threads' chunks are numbered on */
	TRACE_NEXT = 512,  /* it has done so */
	TRACE_LIBRARY = 1024, /* a shared library with a runtime of its own: image_id, bias and path are its */
	TRACE_TOGETHER = 1 << 16, /* besides those of header.tracer, TRACER_PROBES for none, there are hits
	                             of probes and ...; no ring */
	TRACE_WATCHES = 1 << 17,  /* ... accesses: the header ends with four structs trace_watch */
	TRACE_KEEPS = 20, /* a bit's number, not a flag; of a configuration only: from there on is how many
	                     full files are kept, besides the one that is written, 0: it does not rotate */
};

enum trace_rotation { MAX_ROTATE = 999 };

enum trace_off {
	OFF_NOW = 1,
	OFF_MOVED = 2, /* what the next file says holds (TRACE_NEXT) */
};

/* Calls that were not recorded, by reason. */
enum trace_lost {
	LOST_FULL,   /* no room in the file; in a ring: more threads than chunks */
	LOST_DEPTH,  /* the ret_stack was full: left alone (-EBUSY) */
	LOST_NESTED, /* in a signal handler that interrupted the tracer itself */
	LOST_EARLY,  /* before the program, or a thread, had a thread pointer */
	LOST_THREAD, /* no room for one thread more */
	LOST_KINDS
};

struct trace_header {
	char magic[8];      /*   0 */
	u32 version;        /*   8 */
	u32 header_size;    /*  12: bytes; the first chunk begins there */
	u32 machine;        /*  16: e_machine of the image */
	u32 chunk_size;     /*  20: bytes, its header included */
	u32 tracer;         /*  24: enum trace_tracer */
	u32 flags;          /*  28: enum trace_flags */
	u64 size;           /*  32: bytes of the file when it was made */
	u64 taken;          /*  40: bytes of chunks handed out; may exceed the file */
	u64 bias;           /*  48: load address of the image, minus its link address */
	u64 base;           /*  56: link address that `func` is relative to */
	u64 hz;             /*  64: ticks per second */
	u64 ticks;          /*  72: when the trace began */
	u64 realtime;       /*  80: the same in nanoseconds since 1970 */
	u64 ended_ticks;    /*  88: when the program ended, 0 if it did not exit normally */
	u64 ended_realtime; /*  96 */
	u32 pid;            /* 104 */
	u32 ppid;           /* 108 */
	u32 depth;          /* 112: entries of a ret_stack */
	u32 threads;        /* 116: threads seen */
	u64 lost[LOST_KINDS]; /* 120: enum trace_lost, of all threads */
	u64 overwritten;    /* 160: events of a ring whose chunks were used again, or in files that were
	                       removed when this one was begun */
	u64 accounts;       /* 168: where structs trace_account begin, from the file's start; 0: there are
	                       none. Chunks end before them, and they with the file */
	u32 accounted;      /* 176: how many of them were wanted; may exceed their number */
	u32 off;            /* 180: enum trace_off: whether recording is switched off. Calls that were recorded
	                       before are recorded when they return, too. Whoever wants writes to it */
	u8 image_id[32];    /* 184: of the patched file, as recorded in its injected segment */
	char comm[16];      /* 216: the task's name when it began, ended by NUL */
	u32 probes;         /* 232: structs trace_probe, or trace_watch, right after these
	                       TRACE_HEADER bytes */
	u32 children;       /* 236: forked children that record here, unable to create their own
	                       file ... */
	u32 refusal;        /* 240: ... and the errno of the last of them, 0: its own was too small */
	u32 grown;          /* 244: TRACE_UNITs from the file's start that are on disk */
	u64 cut;            /* 248: upper bound of the bytes lost when an earlier file of this process was
	                       truncated */
	char path[1024];    /* 256: of the image, as it was run, ended by NUL */
	char libraries[];   /* 1280: consecutive struct trace_library, up to one whose length is 0 or
	                       the header's end */
};

/* What one thread lost. Of two with the same tid, both count. */
struct trace_account {
	u32 tid;              /*  0: 0: unused */
	u32 unused;           /*  4 */
	u64 lost[LOST_KINDS]; /*  8 */
	u64 overwritten;      /* 48 */
	u64 reserved;         /* 56 */
};

/* A shared library that is traced with the program. `func` of its functions is in a range of its own,
 * after the program's: for the address after the site's call it is
 *
 *     address - bias - base + start
 */
struct trace_library {
	u32 length;      /*  0: bytes of this with its path, a multiple of 8; 0: there are no more */
	u32 unused;      /*  4 */
	u64 start;       /*  8: of its range ... */
	u64 size;        /* 16: ... and how long that is */
	u64 base;        /* 24: link address that `start` stands for */
	u64 bias;        /* 32: where it is, minus where it was linked to be */
	u8 image_id[32]; /* 40: as in the header, of the library */
	char path[];     /* 72: of the file that was patched, ended by NUL */
};

/* A probe. Its text, as in tracefs' kprobe_events, is part of the header too. */
struct trace_probe {
	u32 counted; /*  0: how often FETCH_COUNT was reached, modulo 2**32 ... */
	u32 first;   /*  4: ... and FETCH_FIRST, up to its `value` + 1 */
	u64 missed; /*  8: nmissed: no instance was free, no room in the file, or the tracer itself was
	               interrupted */
	u64 active; /* 16: instances in use, if their number is limited */
	u64 ip;     /* 24: link address */
	u32 words;  /* 32: of values in its events */
	u32 flags;  /* 36: enum probe_flags; from bit PROBE_METHOD on: enum probe_method */
	u32 text;   /* 40: of its definition, from the file's start ... */
	u32 length; /* 44: ... bytes */
};

enum probe_flags {
	PROBE_RETURN = 1, /* an r probe: for PROBE_RETURN, values are fetched at the return */
	PROBE_FAULTS = 2, /* the first word of its values tells which could not be read */
	PROBE_CUT = 4,    /* the last byte of a string tells whether it goes on; without this it is 0 */
	PROBE_CALLS = 8,  /* behind its values are the calls that led there: enum trace_calls */
	PROBE_METHOD = 8, /* a bit's number, not a flag */
};

/* The calls that led to a hit are told in one of two ways, as the probe's definition says:
 *
 *     | count, CALLS_CUT | registers | count words of the stack | to be unwound
 *     | count, CALLS_CUT | the stack's first words | count return addresses | `fp`
 *     | count, CALLS_CUT | x30 | x29 - sp          | count return addresses | `fp`, on arm64
 *     | count, CALLS_CUT | ra  | s0 - 16 - sp      | count return addresses | `fp`, on riscv64
 *
 * Registers are those of struct registers (on s390x, r0 to r15); on arm64, x16 to x30 and sp; on riscv64,
 * x1 to x4, x8, x9 and x18 to x27. Of the stack only words that may be addresses are there; their upper 16
 * bits have their places, in words from the stack pointer on. */
enum trace_calls {
	CALLS_REGISTERS = 16,
	CALLS_TOP = 2,
	CALLS_WORDS = 448,  /* of the stack at most ... */
	CALLS_REACH = 4096, /* ... of so many that are looked at */
	CALLS_PLACE = 48,   /* bits below a word's place */
	CALLS_LEAST = 0x10000, /* what is below is no address: vm.mmap_min_addr */
	CALLS_BITS = 47,    /* ... nor what has more bits */
	CALLS_CUT = 1ull << 32, /* there is more */
};

/* An entry of a histogram, as tracing_map of kernel/trace/tracing_map.c. The hash is 0 for a free one;
 * it is odd once the key is there. Further words of a key, of one with return addresses, are right behind
 * the entry. */
struct trace_hist {
	u64 hash;
	u64 key[8];
	u64 hits;
	s64 sum[2], least[2], most[2]; /* unsigned ones with their highest bit changed, but for sums. Of floats
	                                  sums are doubles, the others as ordered() makes them of doubles */
};

enum trace_hist_limits {
	HIST_CALLS = 32, /* return addresses of a key, besides its 8 words */
};

/* How the instruction was displaced. */
enum probe_method { METHOD_PAD = 1, METHOD_JUMP = 2, METHOD_TRAP = 3, METHOD_PUN = 4 };

/* A watched variable. */
struct trace_watch {
	u64 hits;      /*  0: events */
	u64 missed;    /*  8: accesses without one */
	u64 address;   /* 16: link address */
	u32 length;    /* 24: bytes: 1, 2, 4 or 8 */
	u32 type;      /* 28: 2: writes, 3: reads and writes; 0: unused entry */
	u32 refusal;   /* 32: errno of perf_event_open(2), 0: it was set */
	u32 size;      /* 36: bytes of text */
	char text[984]; /* 40: the request, as in ksym_trace_filter */
};

struct trace_chunk {
	u32 magic;  /* 0: CHUNK_MAGIC */
	u32 tid;    /* 4 */
	u64 base;   /* 8: ticks, absolute */
	u32 number; /* 16: of the thread's chunks, from 0 */
	u32 open;   /* 20: frames that were open in this thread when it began */
	u32 held;    /* 24: of a ring: tid of the thread that stores to it, 0: none ...; with
	                TRACE_TOGETHER: enum trace_kind */
	u16 account; /* 28: ... number of its struct trace_account, plus 1 ... */
	u16 thread;  /* 30: ... and its own, with TRACE_ROTATES too: tids are used again */
};

/* function_profile: a chunk is full of these instead of events. Those whose func is 0 are empty,
 * and stand anywhere. A function has at most one entry in a chunk, and may have one in several. */
struct trace_profile {
	u64 func;  /* as in events, plus 1 */
	u64 hits;
	u64 total; /* ticks */
	u64 self;  /* ticks, without those of the traced functions that it called */
};

#endif
