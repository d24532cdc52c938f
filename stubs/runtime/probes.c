// SPDX-License-Identifier: MIT
/* Probes: called from detours. Compare pre_handler_kretprobe() and __kretprobe_trampoline_handler()
 * of kernel/kprobes.c; an instance is a frame of the ret_stack, and so copes with longjmp, fork and
 * coroutines. */
#include "probes.h"

#define ESRCH 3
#define RECORDING (process.header != 0 && !process.stopped)

typedef void (*user_handler)(struct probe_instance *instance, struct registers *regs);

static inline void missed(u32 number)
{
	if (process.header)
		__atomic_fetch_add(&trace_probe(process.header, number)->missed, 1, __ATOMIC_RELAXED);
}

_Static_assert(3 + VALUES + 1 + CALLS_REGISTERS + CALLS_WORDS <= MAX_EVENT,
	       "a return's values fit behind what is told of the call");

/* Record its values as an event, after `before` other words. The handler runs first, and may change
 * them. */
static void record(struct thread *t, u32 number, u64 now, enum trace_probe_event type,
		   struct probe_instance *instance, struct registers *regs)
{
	const struct probe *probe = probe_at(number);
	u32 before = type == EVENT_RETURNED ? 3 : 1, n, i;
	u64 values[VALUES], *at;
	struct thread *to;

	if (probe->filter && !passes(t, number, instance, regs))
		return;
	if (probe->handler) {
		instance->probe = number;
		instance->ip = trace_probe(process.header, number)->ip + process.bias;
		((user_handler)(ulong)(probe->handler + process.bias))(instance, regs);
	}
	if (probe->entries) {
		if (!hist_counted(t, number, instance, regs))
			missed(number);
		return;
	}
	n = fetched(values, probe, regs);
	to = stream(t, KIND_HITS);
	at = to ? event_at(to, now, before + n + calls_room(probe)) : 0;
	if (unlikely(!at)) {
		lost(t, LOST_FULL);
		missed(number);
		return;
	}
	if (unlikely(!place_holds(to, at))) {
		lost(t, LOST_NESTED);
		missed(number);
		return;
	}
	if (type == EVENT_RETURNED) {
		at[1] = instance->ret;
		at[2] = instance->ticks;
	}
	for (i = 0; i < n; i++)
		at[before + i] = values[i];
	if (unlikely(probe->flags & PROBE_CALLS))
		n += calls_taken(at + before + n, t, probe, regs);
	event_put(to, at, before + n,
		  event(to, now, (u64)number << TYPE_BITS, (enum trace_event)type));
}

/* Free the instances of threads that have ended, as kprobe_flush_task() does. Checked only when no
 * instance is free, and only every so often. */
static int dead_flushed(const struct thread *own, u64 now)
{
	struct thread *t;
	struct frame *frame;
	int any = 0;

	if (now - process.flushed < process.hz / 1024)
		return 0;
	process.flushed = now;
	for (t = process.threads; t; t = t->next) {
		if (t == own || t->top == t->bottom ||
		    syscall6(SYS_tgkill, process.pid, t->tid, 0, 0, 0, 0) != -ESRCH)
			continue;
		for (frame = t->bottom; frame < t->top; frame++)
			instance_freed(frame);
		any = 1;
	}
	return any;
}

/* If a forked child records in its parent's file, the instances counted there are not its own. */
static inline int is_counted(u32 number)
{
	return probe_at(number)->maxactive != ANY && process.header->pid == process.pid;
}

static int instance_taken(struct thread *t, u32 number, u64 now)
{
	struct trace_probe *told = process.states + number;
	u32 most = probe_at(number)->maxactive;

	if (!is_counted(number))
		return 1;
	do {
		if (__atomic_add_fetch(&told->active, 1, __ATOMIC_RELAXED) <= most)
			return 1;
		__atomic_fetch_sub(&told->active, 1, __ATOMIC_RELAXED);
	} while (dead_flushed(t, now));
	return 0;
}

/* An r probe's function was entered. */
static void entered(struct thread *t, u32 number, u64 now, struct registers *regs)
{
	ulong *place = return_place(regs), slot = stack_pointer(regs);
	struct frame *frame;

	if (unlikely(t->top > t->bottom && t->top[-1].slot <= slot) && !frames_left(t, slot, place)) {
		missed(number);
		return;
	}
	frame = t->top;
	if (unlikely(frame >= t->limit || !instance_taken(t, number, now))) {
		missed(number);
		return;
	}
	frame->func = (u64)number << TYPE_BITS | KEPT | is_counted(number);
	frame->slot = slot;
	frame->ret = *place;
	frame->calltime = now;
	frame->childtime = number;
	barrier();
	t->top = frame + 1;
	put_handler(place);
}

/* A function returned whose frame is this one. */
void probe_returned(struct thread *t, struct frame *frame, u64 now, struct registers *regs)
{
	struct probe_instance instance = {0, 0, 0, frame->slot, now - frame->calltime};
	const struct frame *below = frame;
	u32 number = (u32)(frame->func >> TYPE_BITS);

	/* Of several probes on one function, and for a tail call, only one has the real address. */
	while (is_handler(&below->ret) && below > t->bottom)
		below--;
	instance.ret = below->ret & CODE_PLACE;
	instance_freed(frame);
	record(t, number, now, EVENT_RETURNED, &instance, regs);
}

/* A probed place was reached. */
void probe_hit(struct registers *regs)
{
	ulong slot = stack_pointer(regs);
	struct thread *t;
	const struct probe_place *place;
	u32 number, end_;
	u64 now;

	if (unlikely(is_off()))
		return;
	t = begun(slot);
	if (unlikely(!process.ready)) /* the table's location is not even known yet */
		return;
	place = linked(struct probe_place, probe_table()->places) + regs->place;
	end_ = place->first + place->count;
	if (unlikely(!t || !RECORDING)) {
		for (number = place->first; number < end_; number++)
			missed(number);
		if (t)
			end(t, slot);
		return;
	}
	now = ticks();
	for (number = place->first; number < end_; number++) {
		if (probe_at(number)->flags & PROBE_RETURN) {
			entered(t, number, now, regs);
		} else {
			struct probe_instance instance = {0, 0, 0, slot, 0};

			record(t, number, now, EVENT_HIT, &instance, regs);
		}
	}
	end(t, slot);
}
