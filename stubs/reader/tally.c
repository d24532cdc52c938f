// SPDX-License-Identifier: MIT
/* Sums over functions, in one pass over a thread's events with a stack: the part of a profile's report
 * that takes time. ftpatch loads this into its own process. What is irregular in any way is left to
 * ftpatch/trace/match.py and repair.py, which are told so: nothing here guesses.
 *
 * It calls nothing and keeps nothing. */
#include "tally.h"

#define PUBLIC __attribute__((visibility("default")))
#define FUNC_MASK ((1u << FUNC_BITS) - 1)
#define TYPE_MASK ((1u << TYPE_BITS) - 1)

/* Words after an event's first. */
static const u8 behind[TYPE_MASK + 1] = {
	[EVENT_ENTRY_FROM] = 1,
	[EVENT_ENTRY_ARGS] = 6,
	[EVENT_EXIT_VALUE] = 1,
	[EVENT_TIME] = 1,
};

static inline u32 type_of(u64 word)
{
	return word & TYPE_MASK;
}

static inline u32 func_of(u64 word)
{
	return (u32)(word >> TYPE_BITS) & FUNC_MASK;
}

/* The functions of a chunk's events that have no number yet, each once; they get a wrong one.
 * Returns how many, -1 for a chunk that is irregular. */
PUBLIC s64 tally_unknown(const u64 *words, u64 count, u32 *numbers, u64 codes, u32 *unknown)
{
	s64 found = 0;

	for (u64 at = 0; at < count && words[at]; at += 1 + behind[type_of(words[at])]) {
		u32 type = type_of(words[at]), func = func_of(words[at]);

		if (!type || type == EVENT_UNWOUND || count - at <= behind[type])
			return -1;
		if (type == EVENT_TIME)
			continue;
		if (func >= codes)
			return -1;
		if (!numbers[func]) {
			numbers[func] = ~0u;
			unknown[found++] = func;
		}
	}
	return found;
}

static inline struct tally_frame *frames_of(const struct tally *t)
{
	return (struct tally_frame *)(unsigned long)t->frames;
}

static inline double *sums_of(const struct tally *t, u32 function)
{
	return (double *)(unsigned long)t->sums + 4 * (function - 1);
}

static inline u32 *open_of(const struct tally *t, u32 function)
{
	return (u32 *)(unsigned long)t->open + (function - 1);
}

static inline void leave(struct tally *t, s64 time)
{
	struct tally_frame *frame = &frames_of(t)[--t->depth];
	double *sums = sums_of(t, frame->function);
	double took = time > frame->time ? time - frame->time : 0;

	sums[2] += took;
	sums[3] += took;
	if (!--*open_of(t, frame->function))
		sums[1] += took;
	if (t->depth)
		sums_of(t, frame[-1].function)[2] -= took;
}

/* Count the open calls of a thread in `open`, by 1; or no longer, by -1: with another thread's turn. */
PUBLIC void tally_turn(struct tally *t, s64 by)
{
	for (u64 i = 0; i < t->depth; i++)
		*open_of(t, frames_of(t)[i].function) += (u32)by;
}

/* Add a chunk, in which tally_unknown() found nothing irregular and whose functions have their numbers
 * by now. Returns 0; or -1 where a return is not of the innermost call, or for a time that is beyond
 * all reason. */
PUBLIC s64 tally_chunk(struct tally *t, double rate)
{
	const u64 *words = (const u64 *)(unsigned long)t->words;
	const u32 *numbers = (const u32 *)(unsigned long)t->numbers;
	for (u64 at = 0; at < t->count && words[at]; at += 1 + behind[type_of(words[at])]) {
		u64 word = words[at];
		u32 type = type_of(word), func = func_of(word);

		if (type == EVENT_TIME) {
			t->base = words[at + 1];
			continue;
		}
		s64 since = t->base + (word >> TICKS_SHIFT) - t->origin;
		s64 time = __builtin_lrint(since * rate);

		if (time >> TALLY_NS_BITS != time >> 63)
			return -1;
		time += t->shift;
		if (time > t->last)
			t->last = time;
		if (type == EVENT_EXIT || type == EVENT_EXIT_VALUE) {
			if (!t->depth || frames_of(t)[t->depth - 1].func != func)
				return -1;
			leave(t, time);
		} else {
			u32 function = numbers[func];

			frames_of(t)[t->depth++] = (struct tally_frame){ time, func, function };
			sums_of(t, function)[0]++;
			++*open_of(t, function);
		}
	}
	return 0;
}

/* The calls that are still open last until the thread's latest event. */
PUBLIC void tally_end(struct tally *t)
{
	while (t->depth)
		leave(t, t->last);
}
