// SPDX-License-Identifier: MIT
/* The calls that led to a hit: what the frame pointers lead to, or a copy of the stack, to be unwound by
 * who reads it. Return addresses that were replaced are the real ones in both. */
#include "mapped.h"
#include "probes.h"

#ifndef COPIED_REGISTER
#define COPIED_REGISTER(n) (COPIED + (n)) /* register_() of the nth one that is stored with a stack */
#endif
#ifndef COPIED_LINK
#define COPIED_LINK (30 - COPIED) /* the one with the return address among these */
#endif
#ifndef FRAME_BELOW
#define FRAME_BELOW 0 /* bytes from where a frame pointer points down to the caller's */
#endif
#ifndef SLOT_OF
#define SLOT_OF(at) ((at) + 1) /* the least slot of a call that may have stored its return address there */
#endif
#ifndef FRAME_RETURN
#define FRAME_RETURN sizeof(ulong) /* bytes from where a frame pointer points up to the return address */
#endif

#define UPPER_HALF (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) /* which of a word's halves */

/* A walk over a stack, from lower addresses to higher ones. */
struct walk {
	struct thread *thread;
	struct frame *frame; /* of its ret_stack: all above are below */
	ulong end;           /* of the stack */
	ulong page;          /* the last one known to be mapped */
};

/* The end of the thread's stack. A signal's handler may run elsewhere; then only what is mapped tells. */
static ulong stack_end(const struct thread *t, ulong sp)
{
	if (process.stack - sp < MAIN_STACK)
		return process.stack;
	if (t->tp - sp < MAIN_STACK)
		return t->tp;
	return ~0ul - PAGE;
}

static struct walk walk_from(struct thread *t, ulong sp)
{
	/* The stack pointer's own page is mapped. */
	return (struct walk){t, t->top, stack_end(t, sp), sp / LEAST_PAGE};
}

/* Whether there is a word of the stack at `at`. */
static int is_there(struct walk *walk, ulong at)
{
	return at < walk->end &&
	       page_is_there((at + sizeof(ulong) - 1) / LEAST_PAGE, &walk->page);
}

/* What the call of a slot returns to, whose frame is next to `frame`: 0 if there is none. Of several for a
 * tail call, only one has the real address. */
static ulong returns_by(const struct thread *t, const struct frame *frame, ulong slot)
{
	for (; frame > t->bottom && frame[-1].slot == slot; frame--)
		if (!is_handler(&frame[-1].ret))
			return frame[-1].ret;
	frame = frame_elsewhere(slot);
	return frame ? frame->ret : 0;
}

/* The word at `place`; if that is return_to_handler, where the call returns to: 0 for one that is dead. Its
 * slot is `slot`; on arm64, whose calls have it anywhere in their frames or in x30, the first one from there. */
static ulong word_of(struct walk *walk, const ulong *place, ulong slot)
{
	if (likely(!is_signed_handler(place)))
		return unsigned_(*(volatile const ulong *)place);
	while (walk->frame > walk->thread->bottom && walk->frame[-1].slot < slot)
		walk->frame--;
#ifndef RETURNS_FROM_SLOT
	if (walk->frame > walk->thread->bottom)
		slot = walk->frame[-1].slot;
#endif
	return returns_by(walk->thread, walk->frame, slot);
}

/* The same of the stack. On arm64 a frame ends at its slot: the word there is the caller's. */
static ulong word_at(struct walk *walk, ulong at)
{
#ifdef RETURNS_FROM_SLOT
	return word_of(walk, (ulong *)at, at);
#else
	return word_of(walk, (ulong *)at, SLOT_OF(at));
#endif
}

/* Where a function returns to that was just entered, or has returned. */
ulong returns_to(const struct thread *t, const struct probe_instance *instance, const struct registers *regs)
{
	ulong *place = return_place((struct registers *)regs), slot = stack_pointer(regs);
	const struct frame *frame = t->top;

	if (instance->ret)
		return instance->ret;
	if (likely(!is_handler(place)))
		return *place;
	while (frame > t->bottom && frame[-1].slot < slot)
		frame--;
	return returns_by(t, frame, slot);
}

#ifdef UNWOUND
#ifndef RETURNS_FROM_SLOT
/* Where the function returns to, if it has not stored that. */
static ulong linked_to(struct walk *walk, const struct registers *regs)
{
	return word_of(walk, return_place((struct registers *)regs), stack_pointer(regs));
}
#endif

/* Words that may be addresses, each with its place. Of one that is none, only a half is looked at: on arm64
 * no copy of return_to_handler is to lie on the stack. */
static u32 stack_copied(u64 *to, struct walk *walk, ulong sp, u64 *cut)
{
	u32 place, n = 0;
	ulong held;

	for (place = 0; is_there(walk, sp + place * sizeof(ulong)); place++) {
		if (place == CALLS_REACH || n == CALLS_WORDS) {
			*cut = CALLS_CUT;
			break;
		}
#ifdef SIGNED_BITS
		if (((volatile u32 *)sp)[2 * place + UPPER_HALF] >> (SIGNED_BITS - 32))
			continue;
#endif
		held = word_at(walk, sp + place * sizeof(ulong));
		if (held >= CALLS_LEAST)
			to[n++] = (u64)place << CALLS_PLACE | held;
	}
	return n;
}

/* Store the registers, and a copy of the stack (enum trace_calls); return the number of words. */
u32 stack_taken(u64 *to, struct thread *t, const struct registers *regs)
{
	ulong sp = stack_pointer(regs);
	struct walk walk = walk_from(t, sp);
	u64 cut = 0;
	u32 n, i;

	for (i = 0; i < CALLS_REGISTERS; i++)
		to[1 + i] = register_(regs, COPIED_REGISTER(i));
#ifndef RETURNS_FROM_SLOT
	to[1 + COPIED_LINK] = linked_to(&walk, regs);
#endif
	n = stack_copied(to + 1 + CALLS_REGISTERS, &walk, sp, &cut);
	to[0] = n | cut;
	return 1 + CALLS_REGISTERS + n;
}
#endif

#ifdef PROBES
/* The return address beside a frame pointer. A function that aligns its frame further, as main() does on
 * i386, has a copy there, and its slot above. */
static ulong word_beside(struct walk *walk, ulong at)
{
	ulong ret = word_at(walk, at);

	if (likely(ret) || !is_signed_handler((ulong *)at) || walk->frame == walk->thread->bottom)
		return ret;
	return returns_by(walk->thread, walk->frame, walk->frame[-1].slot);
}

/* Return addresses along the frame pointers.
 *
 *     | caller's frame pointer | return address | ...
 *       ^ frame pointer                             callers' frames are further up
 */
static u32 frames_walked(u64 *to, struct walk *walk, ulong sp, ulong fp, u32 most, u64 *cut)
{
	ulong low = sp, ret;
	u32 n = 0;

	while (fp >= low && fp - sp < MAIN_STACK && !(fp % sizeof(ulong)) && is_there(walk, fp)) {
		ulong next = *(volatile ulong *)fp;

		low = fp + 2 * sizeof(ulong);
		if (!is_there(walk, fp + FRAME_RETURN) ||
		    (ret = word_beside(walk, fp + FRAME_RETURN)) < CALLS_LEAST)
			break;
		if (n == most) {
			*cut = CALLS_CUT;
			break;
		}
		to[n++] = ret;
		fp = next - FRAME_BELOW;
	}
	return n;
}

/* The return addresses of up to `most` calls, by their link addresses: that of the function that was hit
 * at its entry or return, and those along the frame pointers. */
void callers_found(u64 *to, u32 most, struct thread *t, const struct probe_instance *instance,
		   const struct registers *regs)
{
	ulong sp = stack_pointer(regs);
	struct walk walk = walk_from(t, sp);
	u64 cut;
	u32 n, i;

	to[0] = returns_to(t, instance, regs);
	n = 1 + frames_walked(to + 1, &walk, sp, FRAME_POINTER(regs) - FRAME_BELOW, most - 1, &cut);
	for (i = 0; i < n; i++)
		to[i] -= process.bias;
	for (; i < most; i++)
		to[i] = 0;
}

#ifdef UNWOUND
/* Store what a probe asks for; return the number of words. */
u32 calls_taken(u64 *to, struct thread *t, const struct probe *probe, const struct registers *regs)
{
	ulong sp = stack_pointer(regs);
	struct walk walk = walk_from(t, sp);
	u32 most = calls_step(probe)->what, n;
	u64 cut = 0;

	if (!most)
		return stack_taken(to, t, regs);
#ifdef RETURNS_FROM_SLOT
	for (u32 i = 0; i < CALLS_TOP; i++)
		to[1 + i] = is_there(&walk, sp + i * sizeof(ulong)) ?
				    word_at(&walk, sp + i * sizeof(ulong)) : 0;
#else
	to[1] = linked_to(&walk, regs);
#ifdef FRAME_CHAIN
	to[2] = is_there(&walk, sp + FRAME_RETURN) ? word_at(&walk, sp + FRAME_RETURN) : 0;
#else
	to[2] = FRAME_POINTER(regs) - FRAME_BELOW - sp;
#endif
#endif
	n = frames_walked(to + 1 + CALLS_TOP, &walk, sp, FRAME_POINTER(regs) - FRAME_BELOW, most, &cut);
	to[0] = n | cut;
	return 1 + CALLS_TOP + n;
}
#endif
#endif
