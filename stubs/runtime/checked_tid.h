/* SPDX-License-Identifier: MIT */
/* Whether a number below the thread pointer is a thread's id: many a number is as small as the id of a
 * container's first process. glibc (nptl/descr.h) has two pointers of a list before the id; musl
 * (pthread_impl.h) has the struct begin 32 bytes before it, with a pointer to itself. */
#ifndef FTPATCH_CHECKED_TID_H
#define FTPATCH_CHECKED_TID_H

#define TID_CHECKED
static inline int is_tid(ulong at)
{
	const ulong *before = (const ulong *)at;

	if (at % sizeof(ulong))
		return 0;
	return (before[-1] > PAGE && before[-2] > PAGE) || before[-4] == at - 32;
}

#endif
