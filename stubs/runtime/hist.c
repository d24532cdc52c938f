// SPDX-License-Identifier: MIT
/* Histograms: hits are counted by key, and values summed up, instead of being recorded. An open hash
 * table in the trace file, whose entries are never freed, as __tracing_map_insert() of
 * kernel/trace/tracing_map.c has it. */
#include "fetch.h"
#include "doubles.h"

#define KEYS 8u
#define SUMS 2u
#define TRIES 4096u

struct hist_hit {
	u64 key[KEYS + HIST_CALLS];
	s64 value[SUMS];
	u32 keys, values;
};

static inline u64 mixed(u64 hash, u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ull; /* 2**64 / the golden ratio */
	return hash ^ hash >> 29;
}

static u64 bits_of(u64 value)
{
	return value ? 64 - (u64)__builtin_clzll(value) : 0;
}

/* 0: a part of the key, or a value, could not be read. */
static int taken(struct hist_hit *hit, const struct fetch *step, const struct fetch *after,
		 struct thread *t, const struct probe_instance *instance,
		 const struct registers *regs)
{
	u64 value = 0;
	ulong known = own_page(regs);

	hit->keys = hit->values = 0;
	for (; step < after; step++) {
		switch (step->op) {
		case FETCH_KEY:
			value = ordered(value, step->what);
			if (step->what & TEST_FLOAT && is_nan(value, step->what))
				value = ~0ull >> 1; /* one of them stands for all */
			if (step->what & HIST_LOG2)
				value = step->what & TEST_SIGNED && (s64)value < 0 ?
						-bits_of(-value) : bits_of(value);
			else if (step->value && step->what & TEST_SIGNED) /* towards minus infinity */
				value = (u64)((s64)value / step->value - ((s64)value % step->value < 0));
			else if (step->value)
				value /= (u64)step->value;
			hit->key[hit->keys++] = value;
			break;
		case FETCH_NAME:
			if (!text(hit->key + hit->keys, (ulong)value, &known))
				return 0;
			hit->keys += STRING_WORDS;
			break;
		case FETCH_FRAMES:
			callers_found(hit->key + hit->keys, step->what, t, instance, regs);
			hit->keys += step->what;
			break;
		case FETCH_SUM:
			if (!(step->what & TEST_FLOAT))
				value = extended(value, step->what);
			else if ((step->what & TEST_WIDTH) == sizeof(u32))
				value = widened((u32)value);
			hit->value[hit->values++] = (s64)value;
			break;
		default:
			if (!stepped_at(step, &value, t, instance, regs, &known))
				return 0;
		}
	}
	return 1;
}

/* A word of an entry's key: those that do not fit into it are behind it. */
static inline u64 *key_word(struct trace_hist *entry, u32 number)
{
	return number < KEYS ? entry->key + number : (u64 *)(entry + 1) + (number - KEYS);
}

static inline int is_same(struct trace_hist *entry, const struct hist_hit *hit)
{
	u64 differs = 0;
	u32 i;

	for (i = 0; i < hit->keys; i++)
		differs |= *key_word(entry, i) ^ hit->key[i];
	return !differs;
}

/* The entry of a key, a new one if it has none; 0 if there is no room, or who makes it was stopped in
 * the middle: it may be this very thread. */
static struct trace_hist *entry_of(const struct probe *probe, const struct hist_hit *hit)
{
	char *entries = (char *)process.header + probe->hist_at;
	u32 size = probe->entries, further = hit->keys > KEYS ? hit->keys - KEYS : 0;
	u32 bytes = (u32)sizeof(struct trace_hist) + further * (u32)sizeof(u64); /* of an entry, as every hit has it */
	u64 hash = 0, held;
	u32 i, at, tries;

	for (i = 0; i < hit->keys; i++)
		hash = mixed(hash, hit->key[i]);
	hash = (hash & ~1ull) | 2; /* of an entry that is being made */
	at = (u32)(hash >> 32);
	for (i = 0; i < size; i++, at++) {
		struct trace_hist *entry = (struct trace_hist *)(entries + (ulong)(at & (size - 1)) * bytes);
		u32 k;

		held = __atomic_load_n(&entry->hash, __ATOMIC_ACQUIRE);
		if (!held && __atomic_compare_exchange_n(&entry->hash, &held, hash, 0, __ATOMIC_ACQUIRE,
							 __ATOMIC_ACQUIRE)) {
			for (k = 0; k < hit->keys; k++)
				*key_word(entry, k) = hit->key[k];
			for (k = 0; k < SUMS; k++) {
				entry->least[k] = (s64)(~0ull >> 1);
				entry->most[k] = -entry->least[k] - 1;
			}
			__atomic_store_n(&entry->hash, hash | 1, __ATOMIC_RELEASE);
			return entry;
		}
		for (tries = 0; held == hash && tries < TRIES; tries++)
			held = __atomic_load_n(&entry->hash, __ATOMIC_ACQUIRE);
		if (held == hash)
			return 0;
		if (held == (hash | 1) && is_same(entry, hit))
			return entry;
	}
	return 0;
}

static void summed(struct trace_hist *entry, u32 number, s64 value, u32 what)
{
	s64 *least = entry->least + number, *most = entry->most + number, *sum = entry->sum + number;
	s64 flip = what & TEST_SIGNED ? 0 : (s64)(1ull << 63), held; /* unsigned ones keep their order so */

	if (what & TEST_FLOAT) {
		held = __atomic_load_n(sum, __ATOMIC_RELAXED);
		while (!__atomic_compare_exchange_n(sum, &held, (s64)doubles_added((u64)held, (u64)value), 1,
						    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			;
		what = sizeof(u64) | TEST_FLOAT;
		value = (s64)ordered((u64)value, what);
		if (is_nan((u64)value, what)) /* neither less nor more than anything */
			return;
	} else {
		__atomic_fetch_add(sum, value, __ATOMIC_RELAXED);
	}
	value ^= flip;
	held = __atomic_load_n(least, __ATOMIC_RELAXED);
	while (value < held &&
	       !__atomic_compare_exchange_n(least, &held, value, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	held = __atomic_load_n(most, __ATOMIC_RELAXED);
	while (value > held &&
	       !__atomic_compare_exchange_n(most, &held, value, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

/* Count a hit. 0: it is lost. */
int hist_counted(struct thread *t, u32 number, const struct probe_instance *instance,
		 const struct registers *regs)
{
	const struct probe *probe = probe_at(number);
	const struct fetch *step = linked(struct fetch, probe_table()->fetches) + probe->fetch +
				   probe->filter + probe->fetches;
	struct trace_hist *entry;
	struct hist_hit hit;
	u32 i, n;

	if (!taken(&hit, step, step + probe->hist, t, instance, regs))
		return 0;
	entry = entry_of(probe, &hit);
	if (!entry)
		return 0;
	__atomic_fetch_add(&entry->hits, 1, __ATOMIC_RELAXED);
	for (i = 0, n = 0; i < probe->hist; i++)
		if (step[i].op == FETCH_SUM) {
			summed(entry, n, hit.value[n], step[i].what);
			n++;
		}
	return 1;
}
