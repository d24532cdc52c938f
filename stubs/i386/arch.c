// SPDX-License-Identifier: MIT
#include "runtime.h"

/* Long division, bit by bit. */
u64 divide(u64 number, u64 by)
{
	u64 result = 0, rest = 0;
	int bit;

	for (bit = 63; bit >= 0; bit--) {
		rest = rest << 1 | (number >> bit & 1);
		if (rest >= by) {
			rest -= by;
			result |= 1ull << bit;
		}
	}
	return result;
}

/* gcc calls this for 64-bit __atomic_fetch_add(), as in libatomic. */
u64 fetch_add_8(u64 *at, u64 number, int order) __asm__("__atomic_fetch_add_8");

__attribute__((visibility("hidden"), used)) u64 fetch_add_8(u64 *at, u64 number, int order)
{
	u64 old = *at, sum;
	u8 stored;

	(void)order;
	do {
		sum = old + number;
		__asm__ __volatile__("lock cmpxchg8b %1\n\tsete %2"
				     : "+A"(old), "+m"(*at), "=m"(stored)
				     : "b"((u32)sum), "c"((u32)(sum >> 32))
				     : "memory", "cc");
	} while (!stored);
	return old;
}

#ifdef PROBES
/* As fnsave leaves it (Intel SDM, volume 1, figure 8-9): 10 bytes of each register, from st(0) on. */
struct saved {
	u32 environment[7];
	u16 numbers[8][5];
};

/* The double or the float that is nearest to a register's number; of two as near, the even one. No
 * instruction converts it: the program may have chosen another rounding, and signals. */
u64 x87(u32 number, int single)
{
	const int bits = single ? 24 : 53, most = single ? 255 : 2047;
	struct saved saved;
	u64 fraction, result, rest, half, infinite = (u64)most << (bits - 1);
	int exponent, shift = 64 - bits;
	u32 negative;

	__asm__ __volatile__("fnsave %0\n\tfrstor %0" : "=m"(saved) : : "memory");
	const u16 *held = saved.numbers[number];

	fraction = (u64)((u32)held[3] << 16 | held[2]) << 32 | ((u32)held[1] << 16 | held[0]);
	negative = held[4] >> 15;
	exponent = (held[4] & 0x7fff) - 16383 + most / 2;
	if ((held[4] & 0x7fff) == 0x7fff) {
		result = infinite;
		if (fraction << 1)
			result |= 1ull << (bits - 2) | fraction << 1 >> (shift + 1);
	} else if (exponent >= most) {
		result = infinite;
	} else {
		if (exponent < 1) { /* a denormal number */
			shift += 1 - exponent;
			exponent = 1;
		}
		result = rest = 0;
		if (shift < 64) {
			result = fraction >> shift;
			rest = fraction << (64 - shift);
		} else if (shift == 64) {
			rest = fraction;
		}
		half = 1ull << 63;
		result += rest > half || (rest == half && (result & 1));
		/* The leading bit counts as one of the exponent, and a carry as another. */
		result += (u64)(exponent - 1) << (bits - 1);
	}
	return result | (u64)negative << (single ? 31 : 63);
}

/* And these. */
#define BUILT_IN __attribute__((visibility("hidden"), used))

/* If *at is `old`, make it `new`; return what it was. */
static u64 exchanged(u64 *at, u64 old, u64 new)
{
	__asm__ __volatile__("lock cmpxchg8b %1"
			     : "+A"(old), "+m"(*at)
			     : "b"((u32)new), "c"((u32)(new >> 32))
			     : "memory", "cc");
	return old;
}

#define FETCH(name, expression)                                                                     \
	u64 name(u64 *at, u64 number, int order);                                                   \
	BUILT_IN u64 name(u64 *at, u64 number, int order)                                           \
	{                                                                                           \
		u64 old, held = *at;                                                                \
                                                                                                    \
		(void)order;                                                                        \
		do {                                                                                \
			old = held;                                                                 \
			held = exchanged(at, old, expression);                                      \
		} while (held != old);                                                              \
		return old;                                                                         \
	}

#pragma redefine_extname fetch_and_8 __atomic_fetch_and_8
#pragma redefine_extname fetch_sub_8 __atomic_fetch_sub_8
#pragma redefine_extname load_8 __atomic_load_8
#pragma redefine_extname store_8 __atomic_store_8
#pragma redefine_extname compare_exchange_8 __atomic_compare_exchange_8
FETCH(fetch_and_8, old & number)
FETCH(fetch_sub_8, old - number)

u64 load_8(u64 *at, int order);
void store_8(u64 *at, u64 number, int order);
int compare_exchange_8(u64 *at, u64 *old, u64 new, int order, int failing);

BUILT_IN u64 load_8(u64 *at, int order)
{
	(void)order;
	return exchanged(at, 0, 0);
}

BUILT_IN void store_8(u64 *at, u64 number, int order)
{
	u64 held = *at, old;

	(void)order;
	do {
		old = held;
		held = exchanged(at, old, number);
	} while (held != old);
}

BUILT_IN int compare_exchange_8(u64 *at, u64 *old, u64 new, int order, int failing)
{
	u64 held = exchanged(at, *old, new);
	int is = held == *old;

	(void)order;
	(void)failing;
	*old = held;
	return is;
}

/* Divisions of 64 bits, as in libgcc, of histograms and filters. */
u64 __udivdi3(u64 number, u64 by);
u64 __umoddi3(u64 number, u64 by);
s64 __divdi3(s64 number, s64 by);
s64 __moddi3(s64 number, s64 by);
s64 __divmoddi4(s64 number, s64 by, s64 *rest);
u64 __udivmoddi4(u64 number, u64 by, u64 *rest);

BUILT_IN u64 __udivdi3(u64 number, u64 by)
{
	return divide(number, by);
}

BUILT_IN u64 __umoddi3(u64 number, u64 by)
{
	return number - divide(number, by) * by;
}

static u64 magnitude(s64 number)
{
	return number < 0 ? 0 - (u64)number : (u64)number;
}

BUILT_IN s64 __divdi3(s64 number, s64 by)
{
	u64 result = divide(magnitude(number), magnitude(by));

	return (s64)((number < 0) != (by < 0) ? 0 - result : result);
}

BUILT_IN s64 __moddi3(s64 number, s64 by)
{
	return number - __divdi3(number, by) * by;
}

BUILT_IN s64 __divmoddi4(s64 number, s64 by, s64 *rest)
{
	s64 result = __divdi3(number, by);

	*rest = number - result * by;
	return result;
}

BUILT_IN u64 __udivmoddi4(u64 number, u64 by, u64 *rest)
{
	u64 result = divide(number, by);

	*rest = number - result * by;
	return result;
}
#endif
