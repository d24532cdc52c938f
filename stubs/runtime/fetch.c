// SPDX-License-Identifier: MIT
/* Fetching values, as process_fetch_insn() of kernel/trace/trace_probe_tmpl.h does. Only the kernel
 * can say whether an address is readable: it copies a signal mask from there before it finds `how`
 * invalid (sigprocmask(2), EFAULT and EINVAL). */
#include "probes.h"

#define LEAST_PAGE 4096ul
#define EFAULT 14

static int is_mapped(ulong at)
{
	return at > 7 && /* a NULL mask would succeed */
	       syscall6(SYS_rt_sigprocmask, -1, (long)(at & ~7ul), 0, 8, 0, 0) != -EFAULT;
}

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

static int readable(u64 *to, ulong at, ulong size)
{
	u64 held = 0;

	if (copied(&held, at, size) != size)
		return 0;
	*to = held;
	return 1;
}

/* A string, as far as it goes: the last byte is 0 if it ends there or before, and nonzero if it
 * goes on, or may (PROBE_CUT). -1 in the first word: it could not be read. */
static int text(u64 *to, ulong at)
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

static inline u64 cut(u64 value, u32 size)
{
	return size < 8 ? value & ((1ull << size * 8) - 1) : value;
}

/* Take a step of those that modify a value. 0: it could not be read. */
static inline __attribute__((always_inline)) int
stepped(const struct fetch *step, u64 *value, const struct registers *regs)
{
	switch (step->op) {
	case FETCH_REGISTER:
		*value = register_(regs, step->what);
		return 1;
	case FETCH_STACK: {
		ulong at = stack_pointer(regs) + (ulong)step->value * sizeof(ulong);

		/* The stack pointer's own page is mapped. */
		if (at / LEAST_PAGE != stack_pointer(regs) / LEAST_PAGE)
			return readable(value, at, sizeof(ulong));
		*value = *(volatile ulong *)at;
		return 1;
	}
	case FETCH_NUMBER:
		*value = (u64)step->value;
		return 1;
	case FETCH_ADDRESS:
		*value = (u64)step->value + process.bias;
		return 1;
	case FETCH_READ:
		return readable(value, (ulong)(*value + (u64)step->value), step->what);
	case FETCH_OWN: {
		const volatile u8 *at = (const volatile u8 *)(ulong)(*value + (u64)step->value);
		u32 i;

		for (*value = 0, i = 0; i < step->what; i++)
			*value |= (u64)at[i] << i * 8;
		return 1;
	}
	default:
		return 1;
	}
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

static inline u64 extended(u64 value, u32 what)
{
	u32 beside = 64 - (what & TEST_WIDTH) * 8;

	return what & TEST_SIGNED ? (u64)((s64)(value << beside) >> beside) : value << beside >> beside;
}

static inline int tested(u64 left, u64 right, u32 what)
{
	if (what & TEST_BITS)
		return (left & right) != 0;
	if (left == right)
		return (what & TEST_EQUAL) != 0;
	if (what & TEST_SIGNED ? (s64)left < (s64)right : left < right)
		return (what & TEST_BELOW) != 0;
	return (what & TEST_ABOVE) != 0;
}

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

static int matched(const struct fetch *step, u64 at)
{
	u64 name[STRING_WORDS], right[STRING_WORDS], differs = 0;
	u32 i;

	if (!text(name, (ulong)at))
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

/* Add one, unless it is above `most` then: it never wraps. */
static u64 counted_to(u32 *count, u32 most)
{
	u32 held = __atomic_load_n(count, __ATOMIC_RELAXED);

	while (held <= most &&
	       !__atomic_compare_exchange_n(count, &held, held + 1, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	return (u64)held + (held <= most);
}

/* Test whether a hit is one that is asked for. What cannot be read makes a comparison false. */
int passes(struct thread *t, u32 number, const struct registers *regs)
{
	const struct probe *probe = probe_at(number);
	const struct fetch *step = linked(struct fetch, probe_table()->fetches) + probe->fetch;
	const struct fetch *after = step + probe->filter;
	struct trace_probe *told = trace_probe(process.header, number);
	u64 value = 0, kept = 0;
	int fault = 0, is;

	for (; step < after; step++) {
		switch (step->op) {
		case FETCH_PLUS:
			value += (u64)step->value;
			break;
		case FETCH_TID:
			value = (u64)t->tid;
			break;
		case FETCH_COUNT:
			value = ((u64)__atomic_fetch_add(&told->counted, 1, __ATOMIC_RELAXED) + 1) % (u64)step->value;
			break;
		case FETCH_FIRST:
			value = counted_to(&told->first, (u32)step->value);
			break;
		case FETCH_KEEP:
			kept = extended(value, step->what);
			break;
		case FETCH_TEST:
		case FETCH_MATCH:
			is = step->op == FETCH_MATCH ?
				     !fault && matched(step, value) :
				     !fault && tested(extended(value, step->what),
						      step->what & TEST_KEPT ? kept : (u64)step->value,
						      step->what);
			fault = 0;
			if (is == !!(step->what & TEST_JUMP))
				step += step->what >> TEST_SKIP;
			break;
		default:
			fault = fault || !stepped(step, &value, regs);
		}
	}
	return step == after;
}
