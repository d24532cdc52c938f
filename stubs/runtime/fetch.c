// SPDX-License-Identifier: MIT
/* Fetching values, as process_fetch_insn() of kernel/trace/trace_probe_tmpl.h does. */
#include "fetch.h"

#define ONES (~0ull / 0xff) /* 01 01 01 01 01 01 01 01 */

/* A word's bytes up to its first that is 0, and 0 behind it; `ends` if there is one.
 *
 *     'a' 'b'  0  'c' ...   ->   'a' 'b' 0 0 ...       in memory
 */
static inline u64 ended(u64 word, u64 *ends)
{
#ifdef BIG_ENDIAN_
	/* Each byte that is 0, and no other: 80. The first one is the highest. */
	*ends = ~(((word & ~(ONES << 7)) + ~(ONES << 7)) | word | ~(ONES << 7));
	return *ends ? word & ~(~0ull >> __builtin_clzll(*ends)) : word;
#else
	*ends = (word - ONES) & ~word & ONES << 7; /* 80 at the first byte that is 0 */
	return *ends ? word & (((*ends & -*ends) >> 7) - 1) : word;
#endif
}

/* Eight bytes from an address on, however it is aligned. */
struct unaligned {
	u64 value;
} __attribute__((packed));

/* Whether all bytes are there: eight of them at most. */
static inline int are_there(ulong at, ulong size, ulong *known)
{
	return page_is_there(at / LEAST_PAGE, known) && page_is_there((at + size - 1) / LEAST_PAGE, known);
}

int readable(u64 *to, ulong at, ulong size, ulong *known)
{
	const volatile u8 *from = (const volatile u8 *)at;
	u64 held = 0;
	ulong i;

	if (!are_there(at, size, known))
		return 0;
	if (size == sizeof(u64))
		held = ((const volatile struct unaligned *)at)->value;
	else
		for (i = 0; i < size; i++)
			held = with_byte(held, from[i], (u32)i);
	*to = held;
	return 1;
}

/* A string, as far as it goes: the last byte is 0 if it ends there or before, and nonzero if it
 * goes on, or may (PROBE_CUT). -1 in the first word: it could not be read. */
int text(u64 *to, ulong at, ulong *known)
{
	const volatile u8 *from = (const volatile u8 *)at;
	ulong size = STRING_WORDS * sizeof(u64), n;
	u64 word, ends;
	u8 *bytes;

	for (n = 0; n < STRING_WORDS; n++)
		to[n] = 0;
	for (n = 0; n < size; n += sizeof(u64)) {
		if (!are_there(at + n, sizeof(u64), known))
			break; /* it may end before that */
		word = ((const volatile struct unaligned *)(at + n))->value;
		to[n / sizeof(u64)] = ended(word, &ends);
		if (ends)
			return 1;
	}
	for (bytes = (u8 *)to; n < size && page_is_there((at + n) / LEAST_PAGE, known); n++) {
		bytes[n] = from[n];
		if (!bytes[n])
			return 1;
	}
	if (n == size)
		return 1;
	if (n == size - 1) {
		bytes[n] = 1;
		return 1;
	}
	to[0] = ~0ull; /* it continues on an unmapped page */
	return 0;
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
	ulong known = own_page(regs);
	int fault = 0;

	for (; step < after; step++) {
		switch (step->op) {
		case FETCH_STRING:
			if (fault || !text(values + n, (ulong)(value + (u64)step->value), &known))
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
			fault = fault || !stepped(step, &value, regs, &known);
		}
	}
	if (probe->flags & PROBE_FAULTS)
		values[0] = faults;
	return n;
}
