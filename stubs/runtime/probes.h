/* SPDX-License-Identifier: MIT */
/* Probes: what ftpatch/probe lays into a program for probes.c. All addresses are link addresses. */
#ifndef FTPATCH_PROBES_H
#define FTPATCH_PROBES_H

#include "threads.h"

/* Where the program was changed, by address. Its probes follow one another. */
struct probe_place {
	u64 address; /* of the instruction that is displaced */
	u64 detour;  /* where that runs, after the probes */
	u32 first, count;
};

struct probe {
	u64 handler; /* a user's own, 0: none */
	u32 flags; /* enum probe_flags */
	u32 maxactive; /* instances, ANY: they are not counted */
	u32 fetch, fetches; /* steps */
	u32 words;          /* of values, in an event */
	u32 unused;
};

/* One step in fetching values: `value` stands for what the steps before came to. */
enum probe_fetch {
	FETCH_REGISTER, /* = register `what` */
	FETCH_STACK,    /* = word `value` of the stack */
	FETCH_NUMBER,   /* = `value` */
	FETCH_ADDRESS,  /* = link address `value`, where it is now */
	FETCH_READ,     /* = the `what` bytes at it + `value` */
	FETCH_OWN,      /* the same, of memory that the program's file brings */
	FETCH_STRING,   /* STRING_WORDS words: the text at it + `value` */
	FETCH_STORE,    /* it is the next value */
};

/* Of a frame's `func`: it holds an instance; it is never 0. */
#define INSTANCE 1u
#define KEPT 2u

enum probe_limits {
	ANY = ~0u,
	STRING_WORDS = 8,
	VALUES = 64, /* words in an event, at most */
};

struct fetch {
	u32 op;
	u32 what;
	s64 value;
};

/* ftpatch_config.probes points to it. */
struct probe_table {
	u64 places, probes, fetches;
	u64 told; /* what the trace file says of them: struct trace_probe, then text */
	u32 place_count, probe_count;
	u32 told_size; /* bytes, a multiple of PAGE */
	u32 traps;     /* places that have a breakpoint */
};

/* What a handler of a user gets, as kretprobe_instance: of a p probe `ret` is 0. */
struct probe_instance {
	u64 probe; /* its number */
	u64 ip;    /* of the probed function, where it is */
	ulong ret;   /* where the function returns to */
	ulong stack; /* where that stood, or the stack pointer on entry */
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

/* An instance is free for another call: its own returned, or was left. */
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
