/* SPDX-License-Identifier: MIT */
/* System calls for files and memory, by syscall6() and the numbers of arch.h. */
#ifndef FTPATCH_FILE_CALLS_H
#define FTPATCH_FILE_CALLS_H

#define AT_FDCWD -100

#ifndef MMAP_BY_MEMORY
static inline long mmap_(ulong at, ulong size, int protection, int flags, long fd)
{
	return syscall6(SYS_mmap, (long)at, (long)size, protection, flags, fd, 0);
}
#endif

static inline long munmap_(ulong at, ulong size)
{
	return syscall6(SYS_munmap, (long)at, (long)size, 0, 0, 0, 0);
}

#ifdef SYS_open
static inline long open_(const char *path, int flags, int mode)
{
	return syscall6(SYS_open, (long)path, flags, mode, 0, 0, 0);
}

static inline long readlink_(const char *path, char *to, ulong size)
{
	return syscall6(SYS_readlink, (long)path, (long)to, (long)size, 0, 0, 0);
}

static inline long unlink_(const char *path)
{
	return syscall6(SYS_unlink, (long)path, 0, 0, 0, 0, 0);
}
#else
static inline long open_(const char *path, int flags, int mode)
{
	return syscall6(SYS_openat, AT_FDCWD, (long)path, flags, mode, 0, 0);
}

static inline long readlink_(const char *path, char *to, ulong size)
{
	return syscall6(SYS_readlinkat, AT_FDCWD, (long)path, (long)to, (long)size, 0, 0);
}

static inline long unlink_(const char *path)
{
	return syscall6(SYS_unlinkat, AT_FDCWD, (long)path, 0, 0, 0, 0);
}
#endif

static inline long truncate_(long fd, u64 size)
{
	return syscall6(SYS_ftruncate, fd, (long)size, 0, 0, 0, 0);
}

/* `limit`: two words. Architectures of today have prlimit64 alone. */
static inline long getrlimit_(long resource, void *limit)
{
#ifdef SYS_getrlimit
	return syscall6(SYS_getrlimit, resource, (long)limit, 0, 0, 0, 0);
#else
	return syscall6(SYS_prlimit64, 0, resource, 0, (long)limit, 0, 0);
#endif
}

/* Architectures of 32 bits have their own. */
#ifndef LENGTHS_IN_PAIRS
struct timespec_ {
	long seconds, nanoseconds;
};

static inline long fallocate_(long fd, u64 size)
{
	return syscall6(SYS_fallocate, fd, 0, 0, (long)size, 0, 0);
}

/* RLIMIT_FSIZE */
static inline void file_limit(u64 limit[2])
{
	getrlimit_(1, limit);
}

#ifndef STATFS_WORD
#define STATFS_WORD u64
#endif

/* Bytes that a file system has left for us, by fstatfs (<asm-generic/statfs.h>); 0 if it does not tell. */
static inline u64 room_left(long fd)
{
	struct {
		STATFS_WORD type, size;
		u64 blocks, free, available, more[10];
	} held;

	return syscall6(SYS_fstatfs, fd, (long)&held, 0, 0, 0, 0) ? 0 : held.available * held.size;
}

static inline u64 divide(u64 number, u64 by)
{
	return number / by;
}
#endif

#endif
