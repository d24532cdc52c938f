// SPDX-License-Identifier: MIT
#include "runtime.h"

/* What gcc calls for __builtin_clzll(): there is no instruction for it without Zbb. */
int __clzdi2(u64 number) __attribute__((visibility("hidden"), used));
int __clzdi2(u64 number)
{
	int zeros = 0, step;

	for (step = 32; step; step /= 2)
		if (!(number >> (64 - step))) {
			number <<= step;
			zeros += step;
		}
	return zeros;
}
