// SPDX-License-Identifier: MIT
/* The filters of watches: which accesses are recorded. */
#include "compared.h"
#include "watch.h"

static u32 counted[WATCHES], first[WATCHES]; /* as in struct trace_probe */

/* Test whether an access is one that is asked for. */
int watch_passes(u32 number, const u64 words[WATCH_WORDS])
{
	const struct fetch *step = laid_rule(number)->step, *after = step + laid_rule(number)->filter;
	u64 value = 0, kept = 0;

	for (; step < after; step++) {
		switch (step->op) {
		case FETCH_REGISTER:
			value = words[step->what];
			break;
		case FETCH_PLUS:
			value += (u64)step->value;
			break;
		case FETCH_COUNT:
			value = ((u64)__atomic_fetch_add(&counted[number], 1, __ATOMIC_RELAXED) + 1) %
				(u64)step->value;
			break;
		case FETCH_FIRST:
			value = counted_to(&first[number], (u32)step->value);
			break;
		case FETCH_KEEP:
			kept = ordered(value, step->what);
			break;
		case FETCH_TEST:
			if (tested(ordered(value, step->what),
				   step->what & TEST_KEPT ? kept : (u64)step->value,
				   step->what) == !!(step->what & TEST_JUMP))
				step += step->what >> TEST_SKIP;
		}
	}
	return step == after;
}
