/* SPDX-License-Identifier: MIT */
/* Results of system calls, and text without libc. */
#ifndef FTPATCH_TEXT_H
#define FTPATCH_TEXT_H

#include "runtime.h"

#define PROT_RW 3

#define EPERM 1
#define EINTR 4
#define ENOMEM 12
#define EFAULT 14
#define EEXIST 17
#define EINVAL 22
#define EFBIG 27
#define ENOSPC 28
#define ENOSYS 38
#define EOPNOTSUPP 95

/* text.c */
ulong length(const char *text);
int append(char *to, ulong size, const char *text);
int append_number(char *to, ulong size, u32 number);
const char *environment(char **envp, const char *name);
void say(const char *variable, const char *value, const char *what);

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
