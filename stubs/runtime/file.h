/* Between start.c, file.c, place.c and threads.c. */
#ifndef FTPATCH_FILE_H
#define FTPATCH_FILE_H

#include "threads.h"

#define PROT_RW 3
#define LEAST (64u << 10) /* bytes of the smallest trace file */
#define PATH 1024 /* bytes of a name, NUL included */

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

/* place.c: what the process was told when it began, before the program could write over it. */
int place_kept(char **envp, const char *name);
const char *program_name(void);
long place_made(char path[PATH], int again);

/* handed.c */
void server_kept(const char *name);
long file_handed(int again);

/* file.c: 0, or an errno below zero */
long make_file(int again);

/* bus.c */
void mapping_kept(ulong at, ulong size);
void bus_kept(void);

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
