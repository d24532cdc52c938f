/* Between start.c and file.c. */
#ifndef FTPATCH_FILE_H
#define FTPATCH_FILE_H

#include "threads.h"

#define PROT_RW 3
#define LEAST (64u << 10) /* bytes of the smallest trace file */

struct trace_header *make_file(const char *wanted, int again);

static inline int failed(long ret)
{
	return (ulong)ret > -4096ul;
}

static inline u64 nanoseconds(int clock)
{
	struct timespec_ now = {0, 0};

	syscall6(SYS_clock_gettime, clock, (long)&now, 0, 0, 0, 0);
	return (u64)now.seconds * 1000000000u + (u64)now.nanoseconds;
}

#endif
