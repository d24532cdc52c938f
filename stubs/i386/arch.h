/* SPDX-License-Identifier: MIT */
/* i386: clock, thread pointer, system calls. */
#ifndef FTPATCH_ARCH_H
#define FTPATCH_ARCH_H

/* A function that leaves every register but the flags as it was (gcc, "x86 Function Attributes"), and
 * takes its arguments in eax, edx and ecx. */
#define REGISTERS __attribute__((no_caller_saved_registers, regparm(3)))

#define PAGE 4096ul
#define ROOM (256ul << 20) /* bytes of address space for the ret_stacks */
#define FILE_MOST (1u << 30) /* bytes of it for the trace file */

#define CLOCK_INSTRUCTION 0x310f /* rdtsc: 0f 31 */

static inline u64 ticks(void)
{
	u64 now;

	__asm__ __volatile__("rdtsc" : "=A"(now));
	return now;
}

static inline u64 ticks_hz(void)
{
	return 0; /* unknown without measuring */
}

/* 0 before there is one: the kernel begins a program with no segment in gs. Then gs:0 holds it ("ELF
 * Handling For Thread-Local Storage", 3.4.2). */
static inline ulong thread_pointer(void)
{
	ulong tp;

	__asm__ __volatile__("movl %%gs, %0" : "=r"(tp));
	if (unlikely(!tp))
		return 0;
	__asm__ __volatile__("movl %%gs:0, %0" : "=r"(tp));
	return tp;
}

static inline void thread_pointer_known(ulong hwcap2, int dynamic)
{
	(void)hwcap2;
	(void)dynamic;
}

/* Offset of tid in glibc's struct pthread, from the thread pointer. */
#define TID_FIRST 0
#define TID_LAST 1024
#define TID_STEP 4

/* `ret $n` pops the arguments too, so the stack pointer afterwards does not tell where the return
 * address was. */
#define RETURNS_HIGHER
enum { POPPED = 256 }; /* bytes of arguments; more are assumed only if nothing else fits */

#define ARGS_ON_STACK

#define SYS_write 4
#define SYS_close 6
#define SYS_getpid 20
#define SYS_getppid 64
#define SYS_prctl 172
#define SYS_rt_sigaction 174
#define SYS_madvise 219
#define SYS_gettid 224
#define SYS_rt_sigprocmask 175
#define SYS_clock_gettime 265
#define SYS_tgkill 270
#define SYS_getcwd 183
#define SYS_getuid 199 /* getuid32 */
#define SYS_socket 359
#define SYS_connect 362
#define SYS_recvmsg 372
#define SYS_setsockopt 366
#define SYS_getsockopt 365
#define SYS_statx 383
#define SYS_getrlimit 191 /* ugetrlimit */
#define O_NOFOLLOW_ 0400000

/* As in the kernel, but unsigned: good until 2106. */
struct timespec_ {
	u32 seconds, nanoseconds;
};

/* In entry.S, as it needs all registers. */
long syscall6(long number, long a, long b, long c, long d, long e, long f)
	__attribute__((visibility("hidden")));

/* mmap2, whose last argument counts pages */
static inline long mmap_(ulong at, ulong size, int protection, int flags, long fd)
{
	return syscall6(192, (long)at, (long)size, protection, flags, fd, 0);
}

static inline long munmap_(ulong at, ulong size)
{
	return syscall6(91, (long)at, (long)size, 0, 0, 0, 0);
}

static inline long open_(const char *path, int flags, int mode)
{
	return syscall6(5, (long)path, flags, mode, 0, 0, 0);
}

static inline long readlink_(const char *path, char *to, ulong size)
{
	return syscall6(85, (long)path, (long)to, (long)size, 0, 0, 0);
}

static inline long unlink_(const char *path)
{
	return syscall6(10, (long)path, 0, 0, 0, 0, 0);
}

static inline long truncate_(long fd, u64 size)
{
	return syscall6(93, fd, (long)size, 0, 0, 0, 0);
}

static inline long fallocate_(long fd, u64 size)
{
	return syscall6(324, fd, 0, 0, 0, (long)size, (long)(size >> 32));
}

/* RLIMIT_FSIZE, by ugetrlimit; but no more than the address space has room for. */
static inline void file_limit(u64 limit[2])
{
	ulong own[2] = {FILE_MOST, FILE_MOST};

	syscall6(SYS_getrlimit, 1, (long)own, 0, 0, 0, 0);
	limit[0] = own[0] < FILE_MOST ? own[0] : FILE_MOST;
}

/* Without libgcc. */
u64 divide(u64 number, u64 by) __attribute__((visibility("hidden")));

#endif
