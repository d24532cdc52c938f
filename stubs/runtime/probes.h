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
	u32 fetch, fetches; /* steps */
	u32 words;          /* of values, per event */
	u32 unused;
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

static inline struct trace_probe *trace_probe(struct trace_header *header, u32 number)
{
	return (struct trace_probe *)((char *)header + TRACE_HEADER) + number;
}

/* probes.c */
void probe_hit(struct registers *regs);
void probe_returned(struct thread *t, struct frame *frame, u64 now, struct registers *regs);

/* fetch.c */
u32 fetched(u64 *values, const struct probe *probe, const struct registers *regs);

/* Make an instance available again: its call returned, or was unwound. */
static inline void instance_freed(struct frame *frame)
{
	struct trace_probe *told;

	if (!(frame->func & INSTANCE) || !process.header)
		return;
	told = trace_probe(process.header, (u32)(frame->func >> TYPE_BITS));
	if (__atomic_fetch_and(&frame->func, ~(u64)INSTANCE, __ATOMIC_RELAXED) & INSTANCE)
		__atomic_fetch_sub(&told->active, 1, __ATOMIC_RELAXED);
}

#endif
