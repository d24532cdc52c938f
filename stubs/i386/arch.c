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
