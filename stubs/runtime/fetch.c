// SPDX-License-Identifier: MIT
/* Fetching values, as process_fetch_insn() of kernel/trace/trace_probe_tmpl.h does. */
#include "fetch.h"

/* Number of leading bytes, of `size` at `at`, that could be read. */
static ulong copied(void *to, ulong at, ulong size)
{
	const volatile u8 *from = (const volatile u8 *)at;
	ulong i;

	for (i = 0; i < size; i++) {
		if ((!i || !((at + i) % LEAST_PAGE)) && !is_mapped(at + i))
			break;
		((volatile u8 *)to)[i] = from[i];
	}
	return i;
}

int readable(u64 *to, ulong at, ulong size)
{
	u64 held = 0;

	if (copied(&held, at, size) != size)
		return 0;
	*to = held;
	return 1;
}

/* A string, as far as it goes: the last byte is 0 if it ends there or before, and nonzero if it
 * goes on, or may (PROBE_CUT). -1 in the first word: it could not be read. */
int text(u64 *to, ulong at)
{
	char *bytes = (char *)to;
	ulong i, size = STRING_WORDS * sizeof(u64), n;

	for (i = 0; i < STRING_WORDS; i++)
		to[i] = 0;
	n = copied(bytes, at, size);
	for (i = 0; i < n && bytes[i]; i++)
		;
	if (i == n && n < size - 1) { /* it continues on an unmapped page */
		to[0] = ~0ull;
		return 0;
	}
	if (i == n && n < size)
		bytes[i++] = 1;
	for (; i < size; i++)
		bytes[i] = 0;
	return 1;
}

/* Nothing of ours uses them (-mgeneral-regs-only), and a signal's return has restored them: they are
 * still the program's. */
__attribute__((noinline)) u64 vector(u32 number)
{
	return vector_(number);
}

static inline u64 cut(u64 value, u32 size)
{
	return size < 8 ? value & ((1ull << size * 8) - 1) : value;
}

/* Fetch all values of a probe into `values`; return their number of words. */
u32 fetched(u64 *values, const struct probe *probe, const struct registers *regs)
{
	const struct fetch *step = linked(struct fetch, probe_table()->fetches) + probe->fetch + probe->filter;
	const struct fetch *after = step + probe->fetches;
	u32 n = probe->flags & PROBE_FAULTS ? 1 : 0, number = 0;
	u64 value = 0, faults = 0;
	int fault = 0;

	for (; step < after; step++) {
		switch (step->op) {
		case FETCH_STRING:
			if (fault || !text(values + n, (ulong)(value + (u64)step->value)))
				values[n] = ~0ull;
			n += STRING_WORDS;
			fault = 0;
			number++;
			break;
		case FETCH_STORE:
			values[n++] = fault ? 0 : cut(value, step->what);
			faults |= (u64)fault << number;
			number++;
			fault = 0;
			break;
		default:
			fault = fault || !stepped(step, &value, regs);
		}
	}
	if (probe->flags & PROBE_FAULTS)
		values[0] = faults;
	return n;
}
