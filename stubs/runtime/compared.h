/* SPDX-License-Identifier: MIT */
/* The tests of filters: numbers compared, as their types say, and counted. */
#ifndef FTPATCH_COMPARED_H
#define FTPATCH_COMPARED_H

#include "probes.h"

static inline u64 extended(u64 value, u32 what)
{
	u32 beside = 64 - (what & TEST_WIDTH) * 8;

	return what & TEST_SIGNED ? (u64)((s64)(value << beside) >> beside) : value << beside >> beside;
}

/* A float as a number of the same order, of its sign and magnitude: -0 is 0, and NaNs are beyond the
 * infinities. Anything else as its type says. */
static inline u64 ordered(u64 value, u32 what)
{
	u32 beside = 64 - (what & TEST_WIDTH) * 8;
	u64 magnitude = value << beside << 1 >> 1 >> beside;

	if (!(what & TEST_FLOAT))
		return extended(value, what);
	return (s64)(value << beside) < 0 ? -magnitude : magnitude;
}

static inline int is_nan(u64 number, u32 what)
{
	s64 infinity = (what & TEST_WIDTH) == 8 ? 0x7ffll << 52 : 0x7f8ll << 20; /* binary64, binary32 */

	return (s64)number > infinity || (s64)number < -infinity;
}

static inline int tested(u64 left, u64 right, u32 what)
{
	if (what & TEST_FLOAT && (is_nan(left, what) || is_nan(right, what))) /* unordered: it is != */
		return (what & (TEST_BELOW | TEST_EQUAL | TEST_ABOVE)) == (TEST_BELOW | TEST_ABOVE);
	if (what & TEST_BITS)
		return (left & right) != 0;
	if (left == right)
		return (what & TEST_EQUAL) != 0;
	if (what & TEST_SIGNED ? (s64)left < (s64)right : left < right)
		return (what & TEST_BELOW) != 0;
	return (what & TEST_ABOVE) != 0;
}

/* Add one, unless it is above `most` then: it never wraps. */
static inline u64 counted_to(u32 *count, u32 most)
{
	u32 held = __atomic_load_n(count, __ATOMIC_RELAXED);

	while (held <= most &&
	       !__atomic_compare_exchange_n(count, &held, held + 1, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	return (u64)held + (held <= most);
}

#endif
