/* SPDX-License-Identifier: MIT */
/* What ftpatch/trace/tally.py and tally.c share. */
#ifndef FTPATCH_TALLY_H
#define FTPATCH_TALLY_H

#include "trace.h"

/* An open call. */
struct tally_frame {
	s64 time;     /* nanoseconds since the start, when it began */
	u32 func;     /* as in the file */
	u32 function; /* its number, plus 1 */
};

/* A thread, at one of its chunks. Addresses are numbers, so that this is the same everywhere. */
struct tally {
	u64 words;   /* address of the chunk's events ... */
	u64 count;   /* ... and how many words they may take */
	u64 base;    /* its ticks */
	u64 origin;  /* the tick that times count from */
	s64 shift;   /* nanoseconds from there to the first trace's */
	u64 numbers; /* address of u32: numbers of functions, plus 1, by `func` */
	u64 sums;    /* address of double[4] of each function: hits; nanoseconds of the outermost calls,
			of its own, of all calls */
	u64 open;    /* address of u32: calls of each function that are open in this thread */
	u64 frames;  /* address of those that are open, with room for one more with each word */
	u64 depth;   /* how many they are */
	s64 last;    /* the latest event of the thread */
};

enum tally_limit {
	TALLY_NS_BITS = 52, /* of times: their double is exact */
};

#endif
