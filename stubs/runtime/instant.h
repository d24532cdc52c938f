/* SPDX-License-Identifier: MIT */
/* What the processor's clock and the kernel's say at the same time.
 *
 *      ticks()  nanoseconds()  ticks()
 *      |------------|------------|      the shorter, the closer
 *
 * A thread may wait in between, and an emulator translates what it runs for the first time: the
 * shortest of a few is taken. */
#ifndef FTPATCH_INSTANT_H
#define FTPATCH_INSTANT_H

#include "text.h"

#define INSTANT_TRIES 5
#define MONOTONIC 1 /* CLOCK_MONOTONIC */

struct instant {
	u64 ticks, nanoseconds;
};

static inline struct instant instant_now(void)
{
	struct instant closest = {0, 0};
	u64 least = ~0ull;
	u32 i;

	for (i = 0; i < INSTANT_TRIES; i++) {
		u64 before = ticks(), now = nanoseconds(MONOTONIC), took = ticks() - before;

		if (took >= least)
			continue;
		least = took;
		closest.ticks = before + took / 2;
		closest.nanoseconds = now;
	}
	return closest;
}

#endif
