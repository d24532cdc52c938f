// SPDX-License-Identifier: MIT
/* Filters, as filter_match_preds() of kernel/trace/trace_events_filter.c: comparisons that lead on, or
 * forward over others. There is no way back. */
#include "fetch.h"

/* Both are of STRING_WORDS words. One step back of the pattern's latest `*` at most for each of the
 * text's bytes. */
static int is_like(const char *name, const char *glob)
{
	const char *star = 0, *from = 0;

	while (*name) {
		if (*glob == '*') {
			star = ++glob;
			from = name;
		} else if (*glob == '?' || *glob == *name) {
			glob++;
			name++;
		} else if (star) {
			glob = star;
			name = ++from;
		} else {
			return 0;
		}
	}
	while (*glob == '*')
		glob++;
	return !*glob;
}

static int matched(const struct fetch *step, u64 at, ulong *known)
{
	u64 name[STRING_WORDS], right[STRING_WORDS], differs = 0;
	u32 i;

	if (!text(name, (ulong)at, known))
		return 0;
	for (i = 0; i < STRING_WORDS; i++) {
		right[i] = (s64)i < step->value ? (u64)step[1 + i].value : 0;
		differs |= name[i] ^ right[i];
	}
	if (!(step->what & TEST_GLOB))
		return !differs == !!(step->what & TEST_EQUAL);
	((char *)name)[sizeof(name) - 1] = 0; /* it goes on: as far as it was read */
	return is_like((char *)name, (char *)right) == !!(step->what & TEST_EQUAL);
}

/* Test whether a hit is one that is asked for. What cannot be read makes a comparison false. */
int passes(struct thread *t, u32 number, const struct probe_instance *instance,
	   const struct registers *regs)
{
	const struct probe *probe = probe_at(number);
	const struct fetch *step = linked(struct fetch, probe_table()->fetches) + probe->fetch;
	const struct fetch *after = step + probe->filter;
	struct trace_probe *told = process.states + number;
	u64 value = 0, kept = 0;
	ulong known = own_page(regs);
	int fault = 0, is;

	for (; step < after; step++) {
		switch (step->op) {
		case FETCH_COUNT:
			value = ((u64)__atomic_fetch_add(&told->counted, 1, __ATOMIC_RELAXED) + 1) % (u64)step->value;
			break;
		case FETCH_FIRST:
			value = counted_to(&told->first, (u32)step->value);
			break;
		case FETCH_WITHIN:
			value = (u64)is_within(t, number, step, instance, regs);
			break;
		case FETCH_DEPTH:
			value = calls_deep(t, number, instance, regs);
			break;
		case FETCH_KEEP:
			kept = ordered(value, step->what);
			break;
		case FETCH_TEST:
		case FETCH_MATCH:
			is = step->op == FETCH_MATCH ?
				     !fault && matched(step, value, &known) :
				     !fault && tested(ordered(value, step->what),
						      step->what & TEST_KEPT ? kept : (u64)step->value,
						      step->what);
			fault = 0;
			if (is == !!(step->what & TEST_JUMP))
				step += step->what >> TEST_SKIP;
			break;
		default:
			fault = fault || !stepped_at(step, &value, t, instance, regs, &known);
		}
	}
	return step == after;
}
