// SPDX-License-Identifier: MIT
/* The function graph tracer: entries and exits. Compare ftrace_push_return_trace() and
 * ftrace_pop_return_trace() of kernel/trace/fgraph.c; here a thread may have several stacks, and
 * may leave frames without returning. */
#include "threads.h"

#ifdef PROFILE
#include "profile.h"
#endif
#ifdef PROBES
#include "probes.h"
#endif

/* A user's own functions are called in place of writing to the trace. */
#ifdef REGS
#include "regs.h"
#define RECORDING 1
#elif defined(USER)
#define RECORDING 1
typedef void (*user_function)(ulong ip, ulong parent);
#define user(which, ip, parent) ((user_function)(ulong)(ftpatch_config.which + process.bias))(ip, parent)
#else
#define RECORDING (process.header != 0)
#endif

#if defined(PROBES)
typedef struct registers *result;
#elif defined(REGS)
typedef struct ftrace_regs *result;
typedef struct ftrace_regs *arguments;
#else
typedef u64 result;
typedef const ulong *arguments;
#endif

#if defined(PROBES)
#define WITH(what) , what
#define ARGUMENTS
#define ENTRY_WORDS 1
#define EXIT_WORDS 1
#elif defined(REGS)
#define WITH(what) , what
#define ARGUMENTS WITH(arguments args)
#define ENTRY_WORDS 1
#define EXIT_WORDS 1
#elif defined(ARGS)
#define WITH(what) , what
#define ARGUMENTS WITH(arguments args)
#define ENTRY_WORDS 7
#define EXIT_WORDS 2
#else
#define WITH(what)
#define ARGUMENTS
#define ENTRY_WORDS 1
#define EXIT_WORDS 1
#endif

#ifdef ARGS
#define SMALLEST_PAGE 4096 /* stacks may end at any */

/* How many of the argument words can be read. Those on the stack may extend past its end; but not
 * if a caller's frame follows, or the page continues. */
static inline u32 args_there(const struct thread *t, ulong slot)
{
#ifdef ARGS_ON_STACK
	ulong here = (PAGE - slot % PAGE) / sizeof(ulong) - 1;
	ulong caller = t->top > t->bottom ? t->top[-1].slot : 0;

	if (here < ENTRY_WORDS - 1 && caller - slot - ENTRY_WORDS * sizeof(ulong) > 1ul << 16)
		return here;
#elif defined(ARG_REGISTERS)
	ulong place = slot + STACK_ARGUMENTS, caller = t->top > t->bottom ? t->top[-1].slot : 0;

	if (place % SMALLEST_PAGE == 0 && caller - place - (ENTRY_WORDS - ARG_REGISTERS) * sizeof(ulong) > 1ul << 16)
		return ARG_REGISTERS;
#else
	(void)t;
	(void)slot;
#endif
	return ENTRY_WORDS - 1;
}

static inline ulong argument(arguments args, ulong slot, u32 number)
{
#ifdef ARG_REGISTERS
	if (number >= ARG_REGISTERS)
		return ((arguments)(slot + STACK_ARGUMENTS))[number - ARG_REGISTERS];
#else
	(void)slot;
#endif
	return args[number];
}
#endif

#ifdef TOGETHER
/* Where the call of this slot returns to, if `place` has its return address, or what replaced that. */
static inline ulong caller_at(const ulong *place, ulong slot)
{
	struct frame *frame;

	if (likely(!is_handler(place)))
		return *place;
	frame = frame_elsewhere(slot);
	return frame ? frame->ret : 0;
}

/* The function tracer's part: compare function.c. */
static inline void entered_only(struct thread *t, ulong ip, const ulong *place, ulong slot)
{
	u64 now = ticks(), func = (u64)(ip - process.bias - (ulong)ftpatch_config.base) << TYPE_BITS;
	u64 *at = event_at(t, now, 2);

	if (unlikely(!at)) {
		lost(t, LOST_FULL);
	} else if (place_holds(t, at)) {
		at[1] = caller_at(place, slot); /* an r probe may have replaced that */
		event_put(t, at, 2, event(t, now, func, EVENT_ENTRY_FROM));
	} else {
		lost(t, LOST_NESTED);
	}
}
#endif

#if !defined(PROBES) || defined(TOGETHER)
/* A site's function was entered. `ip`: the address after the site's call; *place: holds its return
 * address; `slot`: identifies its frame; `args`: six of them, or all registers. */
REGISTERS void trace_entry(ulong ip, ulong *place, ulong slot ARGUMENTS)
{
	struct thread *t;
	struct frame *frame;
	u64 now, func;
#if !defined(PROFILE) && !defined(USER)
	u64 *at;
#endif

	if (unlikely(is_off()))
		return;
	t = begun(slot);
	if (unlikely(!t))
		return;
	if (unlikely(process.stopped || !RECORDING))
		goto out;
#ifdef TOGETHER
	if (ftpatch_config.tracer == TRACER_FUNCTION) {
		entered_only(t, ip, place, slot);
		goto out;
	}
#endif
	if (unlikely(t->top > t->bottom && t->top[-1].slot <= slot) &&
	    !frames_left(t, slot, place)) {
		lost(t, LOST_DEPTH);
		goto out;
	}
	frame = t->top;
	if (unlikely(frame >= t->limit)) {
		lost(t, LOST_DEPTH); /* -EBUSY */
		goto out;
	}
	func = (u64)(ip - process.bias - (ulong)ftpatch_config.base) << TYPE_BITS;
	now = ticks();
#if defined(REGS)
	frame->childtime = regs_entered(t, ip, place, slot, now, args);
	if (!ftpatch_config.returned)
		goto out;
#elif defined(USER)
	user(caller, ip, *place);
	if (!ftpatch_config.returned)
		goto out;
#elif defined(PROFILE)
	func = profile_entered(t, func, now);
	frame->childtime = 0;
#else
	at = event_at(t, now, ENTRY_WORDS);
	if (unlikely(!at)) {
		lost(t, LOST_FULL);
		goto out;
	}
#endif
#ifdef PROFILE
	frame->func = func;
#else
	frame->func = func | TRACED; /* nonzero */
#endif
#ifdef TOGETHER
	frame->childtime = ~0ull; /* no probe's number */
#endif
#if !defined(PROFILE) && !defined(USER)
	if (place_holds(t, at)) {
#ifdef ARGS
		for (u32 i = 0, there = args_there(t, slot); i < ENTRY_WORDS - 1; i++)
			at[i + 1] = i < there ? argument(args, slot, i) : 0;
		event_put(t, at, ENTRY_WORDS, event(t, now, func, EVENT_ENTRY_ARGS));
#else
		event_put(t, at, ENTRY_WORDS, event(t, now, func, EVENT_ENTRY));
#endif
	} else {
		frame->func = 0;
		lost(t, LOST_NESTED);
	}
#endif
	frame->slot = slot;
	frame->ret = *place;
	frame->calltime = now;
	barrier();
	t->top = frame + 1;
	put_handler(place);
out:
	end(t, slot);
}
#endif

/* The frame is finished: record its exit. */
static inline void leave(struct thread *t, struct frame *frame, u64 now WITH(result value))
{
	u64 func = frame->func;

	if (unlikely(!func))
		return;
#if defined(REGS)
	regs_returned(t, frame, now, value);
#elif defined(USER)
	(void)t;
	(void)now;
	user(returned, (ulong)((func >> TYPE_BITS) + ftpatch_config.base + process.bias),
	     frame->ret);
#elif defined(PROFILE)
	profile_left(t, frame, now);
#elif defined(PROBES) && !defined(TOGETHER)
	probe_returned(t, frame, now, value);
#else
#ifdef TOGETHER
	if (!(func & TRACED)) {
		probe_returned(t, frame, now, value);
		return;
	}
#endif
	u64 *at = event_at(t, now, EXIT_WORDS);

	/* Again: trace_forked() clears it. */
	if (unlikely(!at) || !place_holds(t, at) || !(func = frame->func))
		return;
#ifdef ARGS
	at[1] = value;
	event_put(t, at, EXIT_WORDS, event(t, now, func & ~(u64)TRACED, EVENT_EXIT_VALUE));
#else
	event_put(t, at, EXIT_WORDS, event(t, now, func & ~(u64)TRACED, EVENT_EXIT));
#endif
#endif
}

/* Find the return address of a frame that is not on this thread's ret_stack: it was unwound and
 * comes back, or was entered by another thread. */
static REGISTERS __attribute__((noinline)) ulong
return_elsewhere(struct thread *t, ulong slot, u64 now WITH(result value))
{
	struct frame *frame = frame_elsewhere(slot);
	ulong ret;

	if (!frame) {
		/* Nothing is consistent any more. The innermost frame's is the best guess. */
		process.stopped = 1;
		if (process.header)
			process.header->flags |= TRACE_STOPPED;
		return t && t->top > t->bottom ? (--t->top)->ret : 0;
	}
	ret = frame->ret;
	if (t && RECORDING)
		leave(t, frame, now WITH(value));
	frame->slot = 0;
	return ret;
}

/* A function returned `value`: write its original return address to *place. */
REGISTERS void trace_return(ulong *place, ulong slot WITH(result value))
{
	u64 now = ticks();
	struct thread *t = current_thread();
	struct frame *frame;
	ulong own = slot;
	int shared;

	if (t) /* hooked functions are not called from a nested handler: that one was left */
		begin(t, own);
	slot = slot_of_return(t, slot);
	if (unlikely(t && t->from)) {
		end(t, own);
		t = thread_of_return(t, slot);
		begin(t, own);
	}
	do { /* for a tail call, the caller's frame too, which may have been unwound and be
	        elsewhere */
		if (unlikely(!t || t->top == t->bottom || t->top[-1].slot != slot) &&
		    !(t && frame_surfaced(t, slot, now))) {
			*place = return_elsewhere(t, slot, now WITH(value));
			break;
		}
		frame = t->top - 1;
		if (RECORDING)
			leave(t, frame, now WITH(value));
		shared = is_handler(&frame->ret);
		if (likely(!shared))
			*place = frame->ret;
		barrier();
		t->top = frame;
	} while (unlikely(shared));
	if (t)
		end(t, own);
}
