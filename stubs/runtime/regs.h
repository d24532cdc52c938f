/* SPDX-License-Identifier: MIT */
/* Calling a user's own functions with registers: ftrace_regs_caller() and ftrace_regs_return() of
 * include/ftrace_regs.h. */
#ifndef FTPATCH_REGS_H
#define FTPATCH_REGS_H

#include "threads.h"
#include "text.h"
#include "instant.h"
#include "ftrace_regs.h"

typedef void (*regs_function)(struct fgraph_call *call, struct ftrace_regs *regs);

#define MULT_SHIFT 22 /* nanoseconds of a tick as a fraction: 32 bits, down to ... */
#define HZ_LEAST 1000000u

/* As mul_u64_u32_shr() of the kernel's include/linux/math64.h. */
static inline u64 to_nanoseconds(u64 ticks)
{
	u64 passed = ticks > process.ticks ? ticks - process.ticks : 0;

	return process.nanoseconds + ((passed >> 32) * process.mult << (32 - MULT_SHIFT)) +
	       ((u64)(u32)passed * process.mult >> MULT_SHIFT);
}

/* Times begin. `process.hz` is known. */
static inline void regs_started(void)
{
	u64 hz = process.hz > HZ_LEAST ? process.hz : HZ_LEAST;
	struct instant begun = instant_now();

	process.mult = (u32)divide((1000000000ull << MULT_SHIFT) + hz / 2, hz);
	process.nanoseconds = begun.nanoseconds;
	process.ticks = begun.ticks;
}

/* Where a call at `slot` returns to, which for a tail call is known to its caller's frame. `frames`:
 * up to its own. */
static inline ulong returns_to(const struct thread *t, const struct frame *frames, ulong slot, const ulong *place)
{
	while (is_handler(place) && frames > t->low && frames[-1].slot == slot)
		place = &(--frames)->ret;
	return *place;
}

/* `ip`: the address after the site's call. */
static inline struct fgraph_call call_of(const struct thread *t, ulong ip, u64 calltime)
{
	ulong site = site_of(ip);

	return (struct fgraph_call){
		.func = function_of(site),
		.ip = site,
		.calltime = to_nanoseconds(calltime),
		.overrun = t->overrun,
		.missed = t->missed,
		.lost = process.early - process.told,
		.depth = t->under + (u32)(t->top - t->bottom),
		.tid = t->tid,
	};
}

/* A function is entered; the result is what is kept for its return. */
static inline ulong regs_entered(struct thread *t, ulong ip, const ulong *place, ulong slot, u64 now,
				 struct ftrace_regs *regs)
{
	struct fgraph_call call = call_of(t, ip, now);

	call.parent = returns_to(t, t->top, slot, place);
	((regs_function)(ulong)(ftpatch_config.caller + process.bias))(&call, regs);
	return call.data;
}

/* It returns. */
static inline void regs_returned(struct thread *t, const struct frame *frame, u64 now, struct ftrace_regs *regs)
{
	ulong ip = (ulong)((frame->func >> TYPE_BITS) + ftpatch_config.base + process.bias);
	struct fgraph_call call = call_of(t, ip, frame->calltime);

	call.parent = returns_to(t, frame, frame->slot, &frame->ret);
	call.data = (ulong)frame->childtime;
	call.rettime = to_nanoseconds(now);
	if (frame < t->top && frame >= t->bottom)
		call.depth -= (u32)(t->top - frame);
	goes_back(regs, call.parent);
	((regs_function)(ulong)(ftpatch_config.returned + process.bias))(&call, regs);
}

#endif
