/* SPDX-License-Identifier: MIT */
/* The steps that probes, their filters and their histograms have in common. */
#ifndef FTPATCH_FETCH_H
#define FTPATCH_FETCH_H

#include "compared.h"
#include "mapped.h"

/* fetch.c: 0 if it cannot be read; `known`: the last page that was. A string is STRING_WORDS words. */
int readable(u64 *to, ulong at, ulong size, ulong *known);
int text(u64 *to, ulong at, ulong *known);
u64 vector(u32 number);

/* A number, with the next of its bytes in memory, the `i`th. */
static inline u64 with_byte(u64 number, u8 byte, u32 i)
{
#ifdef BIG_ENDIAN_
	(void)i;
	return number << 8 | byte;
#else
	return number | (u64)byte << i * 8;
#endif
}

/* What is known to be there at first. */
static inline ulong own_page(const struct registers *regs)
{
	return stack_pointer(regs) / LEAST_PAGE;
}

/* Take a step of those that modify a value. 0: it could not be read. */
static inline __attribute__((always_inline)) int
stepped(const struct fetch *step, u64 *value, const struct registers *regs, ulong *known)
{
	switch (step->op) {
	case FETCH_REGISTER:
		*value = register_(regs, step->what);
		return 1;
	case FETCH_VECTOR:
		*value = vector(step->what);
		return 1;
	case FETCH_STACK:
		return readable(value, stack_pointer(regs) + (ulong)step->value * sizeof(ulong),
				sizeof(ulong), known);
	case FETCH_NUMBER:
		*value = (u64)step->value;
		return 1;
	case FETCH_ADDRESS:
		*value = (ulong)((u64)step->value + process.bias);
		return 1;
	case FETCH_READ:
		return readable(value, (ulong)(*value + (u64)step->value), step->what, known);
	case FETCH_OWN: {
		const volatile u8 *at = (const volatile u8 *)(ulong)(*value + (u64)step->value);
		u32 i;

		for (*value = 0, i = 0; i < step->what; i++)
			*value = with_byte(*value, at[i], i);
		return 1;
	}
	case FETCH_PLUS:
		*value += (u64)step->value;
		return 1;
	default:
		return 1;
	}
}

/* Those that only a hit knows. */
static inline __attribute__((always_inline)) int
stepped_at(const struct fetch *step, u64 *value, const struct thread *t,
	   const struct probe_instance *instance, const struct registers *regs, ulong *known)
{
	switch (step->op) {
	case FETCH_TID:
		*value = (u64)t->tid;
		return 1;
	case FETCH_CALLER:
		*value = (returns_to(t, instance, regs) & CODE_PLACE) - process.bias;
		return 1;
	case FETCH_LATENCY:
		*value = instance->ticks;
		return 1;
	default:
		return stepped(step, value, regs, known);
	}
}

#endif
