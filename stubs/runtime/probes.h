/* SPDX-License-Identifier: MIT */
/* Probes: the tables that ftpatch/probe injects for probes.c. All addresses are link addresses. */
#ifndef FTPATCH_PROBES_H
#define FTPATCH_PROBES_H

#include "threads.h"

/* The places changed in the program, by address. Probes of one place are consecutive. */
struct probe_place {
	u64 address; /* of the displaced instruction */
	u64 detour;  /* where it runs, after the probes */
	u32 first, count;
};

struct probe {
	u64 handler; /* a user's own, 0: none */
	u32 flags; /* enum probe_flags */
	u32 maxactive; /* instances; ANY: unlimited */
	u32 fetch, fetches; /* steps, behind those of its filter */
	u32 words;          /* of values, per event */
	u32 filter;         /* number of these */
	u32 hist, entries;  /* steps behind them; of its histogram: a power of two, 0: none */
	u64 hist_at;        /* where that is, from the trace file's start */
};

/* One step of fetching a value: it modifies the result of the steps before. */
enum probe_fetch {
	FETCH_REGISTER, /* = register `what` */
	FETCH_STACK,    /* = word `value` of the stack */
	FETCH_NUMBER,   /* = `value` */
	FETCH_ADDRESS,  /* = link address `value`, in memory */
	FETCH_READ,     /* = the `what` bytes at it + `value` */
	FETCH_OWN,      /* the same, of memory from the program's file */
	FETCH_STRING,   /* STRING_WORDS words: the string at it + `value` */
	FETCH_STORE,    /* store it as the next value */
	/* In filters only. A jump leads forward; behind the last step the event is recorded, further
	 * away it is not. */
	FETCH_PLUS,  /* + `value` */
	FETCH_TID,   /* = the thread's id */
	FETCH_COUNT, /* = how often this step was reached, modulo `value` */
	FETCH_FIRST, /* = the same, up to `value` + 1 */
	FETCH_KEEP,  /* keep it to compare with */
	FETCH_TEST,  /* compare it with `value`, or with what was kept: enum probe_test */
	FETCH_MATCH, /* compare the string at it, with that in the `value` steps behind this */
	FETCH_TEXT,  /* eight bytes of that */
	/* In filters and histograms. */
	FETCH_CALLER,  /* = where the function returns to */
	FETCH_LATENCY, /* = ticks since it was entered */
	/* In histograms only. `what` is enum probe_test's first two, and HIST_LOG2. */
	FETCH_KEY,   /* it is the next word of the key; with `value`, divided by that */
	FETCH_NAME,  /* STRING_WORDS words of the key: the string at it */
	FETCH_SUM, /* it is the next value to sum up */
	/* The last one that fetches. */
	FETCH_CALLS, /* the calls that led here: calls_step() */
	/* In filters only. */
	FETCH_WITHIN, /* = whether the thread is in a call that one of the `what` probes from the `value`th on
	                 follows */
	/* Anywhere. */
	FETCH_VECTOR, /* = the low eight bytes of vector register `what` */
	/* In filters only. */
	FETCH_DEPTH, /* = how many calls that r probes follow the thread is in */
	/* In histograms only. */
	FETCH_FRAMES, /* `what` words of the key: return addresses, along the frame pointers */
};

/* `what` of FETCH_TEST and FETCH_MATCH; of FETCH_KEEP the first two. */
enum probe_test {
	TEST_WIDTH = 15,       /* bytes that count */
	TEST_SIGNED = 1 << 4,  /* and are extended by their sign */
	TEST_KEPT = 1 << 5,    /* the right side was kept */
	TEST_JUMP = 1 << 6,    /* jump if it is true, else if it is false */
	TEST_BELOW = 1 << 7,   /* left of what */
	TEST_EQUAL = 1 << 8,   /* equal to what */
	TEST_ABOVE = 1 << 9,   /* right of what */
	TEST_BITS = 1 << 10,   /* has a bit of what */
	TEST_GLOB = 1 << 11,   /* is like what: * and ? */
	TEST_SKIP = 16,        /* a bit's number: steps that the jump leads over */
	HIST_LOG2 = 1 << 5,    /* the number of bits that it takes, of a negative number less than 0 */
	TEST_FLOAT = 1 << 12,  /* a float: with a sign, numbers as ordered() makes them */
};

/* In a frame's `func`: it holds an instance; never 0. */
#define INSTANCE 1u
#define KEPT 2u

enum probe_limits {
	ANY = ~0u,
	STRING_WORDS = 8,
	VALUES = 64, /* maximum words per event */
};

struct fetch {
	u32 op;
	u32 what;
	s64 value;
};

/* ftpatch_config.probes points to it. */
struct probe_table {
	u64 places, probes, fetches;
	u64 told; /* the trace file's entries for them: struct trace_probe, then text */
	u32 place_count, probe_count;
	u32 told_size; /* bytes, a multiple of PAGE */
	u32 traps;     /* number of places with a breakpoint */
	u64 hists;     /* bytes of histograms in the trace file, behind the entries */
};

/* Argument of a user's handler, like kretprobe_instance: `ret` is 0 for a p probe. */
struct probe_instance {
	u64 probe; /* its number */
	u64 ip;    /* of the probed function, in memory */
	ulong ret;   /* return address of the function */
	ulong stack; /* where that was stored, or the stack pointer on entry */
	u64 ticks;   /* since it was entered */
};

static inline const struct probe_table *probe_table(void)
{
	return linked(struct probe_table, ftpatch_config.probes);
}

static inline const struct probe *probe_at(u32 number)
{
	return linked(struct probe, probe_table()->probes) + number;
}

static inline struct trace_probe *trace_probe(struct trace_header *header, u32 number)
{
	return (struct trace_probe *)((char *)header + TRACE_HEADER) + number;
}

/* probes.c */
void probe_hit(struct registers *regs);
void probe_returned(struct thread *t, struct frame *frame, u64 now, struct registers *regs);

/* fetch.c */
u32 fetched(u64 *values, const struct probe *probe, const struct registers *regs);

/* calls.c */
ulong returns_to(const struct thread *t, const struct probe_instance *instance, const struct registers *regs);
void callers_found(u64 *to, u32 most, struct thread *t, const struct probe_instance *instance,
		   const struct registers *regs);
#ifdef UNWOUND
u32 stack_taken(u64 *to, struct thread *t, const struct registers *regs);
u32 calls_taken(u64 *to, struct thread *t, const struct probe *probe, const struct registers *regs);
#else
static inline u32 calls_taken(u64 *to, struct thread *t, const struct probe *probe,
			      const struct registers *regs)
{
	(void)to;
	(void)t;
	(void)probe;
	(void)regs;
	return 0;
}
#endif

/* The step that says how: `what` is the number of calls to find along the frame pointers, 0: copy. It
 * is the last one that fetches. */
static inline const struct fetch *calls_step(const struct probe *probe)
{
	return linked(struct fetch, probe_table()->fetches) + probe->fetch + probe->filter +
	       probe->fetches - 1;
}

/* The words that they can take. */
static inline u32 calls_room(const struct probe *probe)
{
	if (likely(!(probe->flags & PROBE_CALLS)))
		return 0;
	return calls_step(probe)->what ? 1 + CALLS_TOP + calls_step(probe)->what :
					 1 + CALLS_REGISTERS + CALLS_WORDS;
}

/* filter.c */
int passes(struct thread *t, u32 number, const struct probe_instance *instance,
	   const struct registers *regs);

/* within.c */
int is_within(const struct thread *t, u32 number, const struct fetch *step,
	      const struct probe_instance *instance, const struct registers *regs);
u32 calls_deep(const struct thread *t, u32 number, const struct probe_instance *instance,
	       const struct registers *regs);

/* hist.c */
int hist_counted(struct thread *t, u32 number, const struct probe_instance *instance,
		 const struct registers *regs);

/* Make an instance available again: its call returned, or was unwound. */
static inline void instance_freed(struct frame *frame)
{
	struct trace_probe *told;

	if (!(frame->func & INSTANCE) || !process.header)
		return;
	told = process.states + (frame->func >> TYPE_BITS);
	if (__atomic_fetch_and(&frame->func, ~(u64)INSTANCE, __ATOMIC_RELAXED) & INSTANCE)
		__atomic_fetch_sub(&told->active, 1, __ATOMIC_RELAXED);
}

#endif
