/* SPDX-License-Identifier: MIT */
/* ppc64le: clock, thread pointer, system calls. */
#ifndef FTPATCH_ARCH_H
#define FTPATCH_ARCH_H

/* There is no attribute for it: entry.S saves what C functions may change. */
#define REGISTERS

#define PAGE 65536ul /* the largest */

static inline u64 ticks(void)
{
	u64 now;

	__asm__ __volatile__("mftb %0" : "=r"(now));
	return now;
}

static inline u64 ticks_hz(void)
{
	return 0; /* unknown without measuring */
}

/* 0 before there is one, as the kernel starts programs. */
static inline ulong thread_pointer(void)
{
	ulong tp;

	__asm__ __volatile__("mr %0, 13" : "=r"(tp));
	return tp;
}

static inline void thread_pointer_known(ulong hwcap2, int dynamic)
{
	(void)hwcap2;
	(void)dynamic;
}

/* struct pthread ends 0x7000 bytes before the thread pointer (psABI, ELFv2, 3.7.2; musl: TP_OFFSET), in
 * glibc below another structure. Nothing is known to be mapped below it, so it is searched from its end. */
#define TID_FIRST (-0x7000 - 4)
#define TID_LAST (-0x7000 - 2560)
#define TID_STEP -4

/* Many a number is as small as the id of a container's first process; glibc (nptl/descr.h) has two
 * pointers of a list before the id, musl (pthread_impl.h) has the struct begin 32 bytes before it,
 * with a pointer to itself. */
#define TID_CHECKED
static inline int is_tid(ulong at)
{
	const ulong *before = (const ulong *)at;

	if (at % sizeof(ulong))
		return 0;
	return (before[-1] > PAGE && before[-2] > PAGE) || before[-4] == at - 32;
}

/* arch/powerpc/include/uapi/asm: unistd_64.h (made of syscall.tbl), fcntl.h, mman.h, socket.h */
#define SYS_read 3
#define SYS_write 4
#define SYS_close 6
#define SYS_clock_gettime 246
#define SYS_prctl 171
#define SYS_getpid 20
#define SYS_getppid 64
#define SYS_gettid 207
#define SYS_rt_sigprocmask 174
#define SYS_madvise 205
#define SYS_getcwd 182
#define SYS_getuid 24
#define SYS_socket 326
#define SYS_connect 328
#define SYS_recvmsg 342
#define SYS_setsockopt 339
#define SYS_getsockopt 340
#define SYS_statx 383
#define SYS_getrlimit 190 /* ugetrlimit; 76 is for 32 bits */
#define SYS_nanosleep 162
#define SYS_membarrier 365
#define SYS_tgkill 250
#define SYS_rt_sigaction 173
#define SYS_mprotect 125
#define SYS_mmap 90
#define SYS_munmap 91
#define SYS_mremap 163
#define O_NOFOLLOW_ 0100000
#define MAP_NORESERVE_ 0x40
#define SO_PEERCRED 21
#define SO_RCVTIMEO 18
#define SO_SNDTIMEO 19
#define AT_FDCWD -100

struct timespec_ {
	long seconds, nanoseconds;
};

/* An error is its number, with the summary overflow bit of cr0. */
static inline long syscall6(long number, long a, long b, long c, long d, long e, long f)
{
	register long r0 __asm__("r0") = number;
	register long r3 __asm__("r3") = a;
	register long r4 __asm__("r4") = b;
	register long r5 __asm__("r5") = c;
	register long r6 __asm__("r6") = d;
	register long r7 __asm__("r7") = e;
	register long r8 __asm__("r8") = f;

	__asm__ __volatile__("sc\n\tbns+ 1f\n\tneg 3, 3\n1:"
			     : "+r"(r0), "+r"(r3), "+r"(r4), "+r"(r5), "+r"(r6), "+r"(r7), "+r"(r8)
			     :
			     : "memory", "cr0", "ctr", "r9", "r10", "r11", "r12");
	return r3;
}

static inline long mmap_(ulong at, ulong size, int protection, int flags, long fd)
{
	return syscall6(90, (long)at, (long)size, protection, flags, fd, 0);
}

static inline long munmap_(ulong at, ulong size)
{
	return syscall6(91, (long)at, (long)size, 0, 0, 0, 0);
}

static inline long open_(const char *path, int flags, int mode)
{
	return syscall6(286, AT_FDCWD, (long)path, flags, mode, 0, 0);
}

static inline long readlink_(const char *path, char *to, ulong size)
{
	return syscall6(296, AT_FDCWD, (long)path, (long)to, (long)size, 0, 0);
}

static inline long unlink_(const char *path)
{
	return syscall6(292, AT_FDCWD, (long)path, 0, 0, 0, 0);
}

static inline long truncate_(long fd, u64 size)
{
	return syscall6(93, fd, (long)size, 0, 0, 0, 0);
}

static inline long fallocate_(long fd, u64 size)
{
	return syscall6(309, fd, 0, 0, (long)size, 0, 0);
}

/* RLIMIT_FSIZE */
static inline void file_limit(u64 limit[2])
{
	syscall6(SYS_getrlimit, 1, (long)limit, 0, 0, 0, 0);
}

/* Bytes that a file system has left for us, by fstatfs (<asm-generic/statfs.h>); 0 if it does not tell. */
static inline u64 room_left(long fd)
{
	u64 held[15];

	return syscall6(100, fd, (long)held, 0, 0, 0, 0) ? 0 : held[4] * held[1]; /* f_bavail, f_bsize */
}

static inline u64 divide(u64 number, u64 by)
{
	return number / by;
}

#endif
