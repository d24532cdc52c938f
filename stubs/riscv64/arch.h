/* SPDX-License-Identifier: MIT */
/* riscv64: clock, thread pointer, system calls. */
#ifndef FTPATCH_ARCH_H
#define FTPATCH_ARCH_H

/* There is no attribute for it: entry.S saves what C functions may change. */
#define REGISTERS

#define PAGE 4096ul

static inline u64 ticks(void)
{
	u64 now;

	__asm__ __volatile__("rdtime %0" : "=r"(now));
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

	__asm__ __volatile__("mv %0, tp" : "=r"(tp));
	return tp;
}

static inline void thread_pointer_known(ulong hwcap2, int dynamic)
{
	(void)hwcap2;
	(void)dynamic;
}

/* struct pthread is below the thread pointer. Nothing is known to be mapped below it, so it is
 * searched from its end. */
#define TID_FIRST -4
#define TID_LAST -2560
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

/* include/uapi/asm-generic/unistd.h */
#define SYS_read 63
#define SYS_write 64
#define SYS_close 57
#define SYS_clock_gettime 113
#define SYS_prctl 167
#define SYS_getpid 172
#define SYS_getppid 173
#define SYS_gettid 178
#define SYS_rt_sigprocmask 135
#define SYS_madvise 233
#define SYS_getcwd 17
#define SYS_getuid 174
#define SYS_socket 198
#define SYS_connect 203
#define SYS_recvmsg 212
#define SYS_setsockopt 208
#define SYS_getsockopt 209
#define SYS_statx 291
#define SYS_getrlimit 163
#define SYS_nanosleep 101
#define SYS_membarrier 283
#define SYS_tgkill 131
#define SYS_rt_sigaction 134
#define SYS_mprotect 226
#define SYS_mmap 222
#define SYS_munmap 215
#define SYS_mremap 216
#define SYS_rt_sigpending 136
#define SYS_rt_sigtimedwait 137
#define SYS_rt_sigsuspend 133
#define SYS_pselect6 72
#define SYS_ppoll 73
#define SYS_epoll_pwait 22
#define SYS_memfd_create 279
#define SYS_io_pgetevents 292
#define SYS_io_uring_enter 426
#define SYS_epoll_pwait2 441
#define O_NOFOLLOW_ 0400000
#define AT_FDCWD -100

struct timespec_ {
	long seconds, nanoseconds;
};

static inline long syscall6(long number, long a, long b, long c, long d, long e, long f)
{
	register long a7 __asm__("a7") = number;
	register long a0 __asm__("a0") = a;
	register long a1 __asm__("a1") = b;
	register long a2 __asm__("a2") = c;
	register long a3 __asm__("a3") = d;
	register long a4 __asm__("a4") = e;
	register long a5 __asm__("a5") = f;

	__asm__ __volatile__("ecall"
			     : "+r"(a0)
			     : "r"(a7), "r"(a1), "r"(a2), "r"(a3), "r"(a4), "r"(a5)
			     : "memory");
	return a0;
}

static inline long mmap_(ulong at, ulong size, int protection, int flags, long fd)
{
	return syscall6(SYS_mmap, (long)at, (long)size, protection, flags, fd, 0);
}

static inline long munmap_(ulong at, ulong size)
{
	return syscall6(SYS_munmap, (long)at, (long)size, 0, 0, 0, 0);
}

static inline long open_(const char *path, int flags, int mode)
{
	return syscall6(56, AT_FDCWD, (long)path, flags, mode, 0, 0);
}

static inline long readlink_(const char *path, char *to, ulong size)
{
	return syscall6(78, AT_FDCWD, (long)path, (long)to, (long)size, 0, 0);
}

static inline long unlink_(const char *path)
{
	return syscall6(35, AT_FDCWD, (long)path, 0, 0, 0, 0);
}

static inline long truncate_(long fd, u64 size)
{
	return syscall6(46, fd, (long)size, 0, 0, 0, 0);
}

static inline long fallocate_(long fd, u64 size)
{
	return syscall6(47, fd, 0, 0, (long)size, 0, 0);
}

/* RLIMIT_FSIZE */
static inline void file_limit(u64 limit[2])
{
	syscall6(SYS_getrlimit, 1, (long)limit, 0, 0, 0, 0);
}

static inline u64 divide(u64 number, u64 by)
{
	return number / by;
}

#endif
