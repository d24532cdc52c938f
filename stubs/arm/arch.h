/* SPDX-License-Identifier: MIT */
/* 32-bit ARM: clock, thread pointer, system calls. */
#ifndef FTPATCH_ARCH_H
#define FTPATCH_ARCH_H

/* There is no attribute for it: entry.S saves what C functions may change. */
#define REGISTERS

#define NO_EH_FRAME /* but .ARM.exidx */

#define PAGE 65536ul /* the largest */
#define ROOM (256ul << 20) /* bytes of address space for the ret_stacks */
#define FILE_MOST (1u << 30) /* bytes of it for the trace file */

/* The counter (CNTVCT) is neither on every processor nor open to every program: so the clock is
 * CLOCK_MONOTONIC, which the vDSO reads without a system call where it can (clock_found() in arch.c). */
#define CLOCK_OF_VDSO
u64 ticks(void) __attribute__((visibility("hidden")));
void clock_found(ulong vdso) __attribute__((visibility("hidden")));

static inline u64 ticks_hz(void)
{
	return 1000000000;
}

/* 0 before there is one, as the kernel starts programs: TPIDRURO (Arm ARM, DDI 0406C, B4.1.150). */
static inline ulong thread_pointer(void)
{
	ulong tp;

	__asm__ __volatile__("mrc p15, 0, %0, c13, c0, 3" : "=r"(tp));
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
 * pointers of a list before the id, musl (pthread_impl.h) has the struct begin 16 bytes before it,
 * with a pointer to itself. */
#define TID_CHECKED
static inline int is_tid(ulong at)
{
	const ulong *before = (const ulong *)at;

	return (before[-1] > PAGE && before[-2] > PAGE) || before[-4] == at - 16;
}

/* By what __libc_start_main() gets on the stack (sysdeps/arm/start.S of glibc). */
#define ARGC_OVERWRITTEN

#define ARG_REGISTERS 4    /* words of arguments in registers */
#define STACK_ARGUMENTS 0  /* from the slot to the others */

/* arch/arm/include/uapi/asm: unistd-eabi.h (made of syscall.tbl), fcntl.h */
#define SYS_read 3
#define SYS_write 4
#define SYS_close 6
#define SYS_clock_gettime 263
#define SYS_prctl 172
#define SYS_getpid 20
#define SYS_getppid 64
#define SYS_gettid 224
#define SYS_rt_sigprocmask 175
#define SYS_rt_sigpending 176
#define SYS_rt_sigtimedwait 177
#define SYS_rt_sigsuspend 179
#define SYS_pselect6 335
#define SYS_ppoll 336
#define SYS_epoll_pwait 346
#define SYS_memfd_create 385
#define SYS_io_pgetevents 399
#define SYS_io_uring_enter 426
#define SYS_epoll_pwait2 441
#define SYS_madvise 220
#define SYS_getcwd 183
#define SYS_getuid 199 /* getuid32 */
#define SYS_socket 281
#define SYS_connect 283
#define SYS_recvmsg 297
#define SYS_setsockopt 294
#define SYS_getsockopt 295
#define SYS_statx 397
#define SYS_getrlimit 191 /* ugetrlimit */
#define SYS_nanosleep 162
#define SYS_membarrier 389
#define SYS_tgkill 268
#define SYS_rt_sigaction 174
#define SYS_mprotect 125
#define SYS_mmap 192 /* mmap2, which counts units of 4096 bytes */
#define SYS_munmap 91
#define SYS_open 5
#define SYS_readlink 85
#define SYS_unlink 10
#define SYS_ftruncate 93
#define SYS_mremap 163
#define O_NOFOLLOW_ 0100000

#define FILE_OFFSET(bytes) ((bytes) >> 12)

/* As in the kernel, but unsigned: good until 2106. */
struct timespec_ {
	u32 seconds, nanoseconds;
};

static inline long syscall6(long number, long a, long b, long c, long d, long e, long f)
{
	register long r7 __asm__("r7") = number;
	register long r0 __asm__("r0") = a;
	register long r1 __asm__("r1") = b;
	register long r2 __asm__("r2") = c;
	register long r3 __asm__("r3") = d;
	register long r4 __asm__("r4") = e;
	register long r5 __asm__("r5") = f;

	__asm__ __volatile__("svc #0"
			     : "+r"(r0)
			     : "r"(r7), "r"(r1), "r"(r2), "r"(r3), "r"(r4), "r"(r5)
			     : "memory");
	return r0;
}

#define LENGTHS_IN_PAIRS /* of registers */
#include "file_calls.h"

static inline long fallocate_(long fd, u64 size)
{
	return syscall6(352, fd, 0, 0, 0, (long)size, (long)(size >> 32));
}

/* RLIMIT_FSIZE, by ugetrlimit; but no more than the address space has room for. */
static inline void file_limit(u64 limit[2])
{
	ulong own[2] = {FILE_MOST, FILE_MOST};

	syscall6(SYS_getrlimit, 1, (long)own, 0, 0, 0, 0);
	limit[0] = own[0] < FILE_MOST ? own[0] : FILE_MOST;
}

/* Bytes that a file system has left for us, by fstatfs64 (<asm-generic/statfs.h>); 0 if it does not tell. */
static inline u64 room_left(long fd)
{
	struct {
		u32 type, size;
		u64 blocks, free, available;
		u32 more[13];
	} __attribute__((packed, aligned(4))) held;

	return syscall6(267, fd, sizeof(held), (long)&held, 0, 0, 0) ? 0 : held.available * held.size;
}

/* Without libgcc. */
u64 divide(u64 number, u64 by) __attribute__((visibility("hidden")));

/* Saved by a detour (probes.S), and restored. */
struct registers {
	ulong r[15];       /* r13 is sp, r14 lr */
	ulong flags;       /* as apsr has them */
	ulong back, place; /* of a hit: into the detour; number of the place */
};

static inline ulong stack_pointer(const struct registers *regs)
{
	return regs->r[13];
}

/* The location of the return address on function entry. */
static inline ulong *return_place(struct registers *regs)
{
	return &regs->r[14];
}

#define FRAME_POINTER(regs) ((regs)->r[11]) /* of A32; no chain of them is read */
#define is_signed_handler is_handler
#define unsigned_(address) (address)

/* 15 is the flags; PAIRED * (1 + h) + l a value of two words, of which h has the upper one. */
enum { PAIRED = 16 };

static inline ulong word_(const struct registers *regs, u32 number)
{
	return number < 15 ? regs->r[number] : regs->flags;
}

static inline u64 register_(const struct registers *regs, u32 number)
{
	if (number >= PAIRED)
		return (u64)word_(regs, number / PAIRED - 1) << 32 | word_(regs, number % PAIRED);
	return word_(regs, number);
}

/* d0 to d15, then s0 to s31. Only who asks for one needs VFP: vmov r2, r3, dN, which the compiler is not
 * told of (Arm ARM, DDI 0406C, A8.8.345). */
static inline u64 vector_(u32 number)
{
	register u32 low __asm__("r2") = 0;
	register u32 high __asm__("r3") = 0;

	switch (number < 16 ? number : (number - 16) / 2) {
#define VECTOR(n) case n: __asm__ __volatile__(".inst 0xec532b10 + " #n : "=r"(low), "=r"(high)); break;
		VECTOR(0) VECTOR(1) VECTOR(2) VECTOR(3) VECTOR(4) VECTOR(5) VECTOR(6) VECTOR(7)
		VECTOR(8) VECTOR(9) VECTOR(10) VECTOR(11) VECTOR(12) VECTOR(13) VECTOR(14) VECTOR(15)
#undef VECTOR
	}
	if (number < 16)
		return (u64)high << 32 | low;
	return number % 2 ? high : low;
}

/* A signal handler's context, up to the registers (arch/arm/include/uapi/asm/sigcontext.h). */
struct context {
	ulong before[8]; /* struct ucontext up to uc_mcontext, and of that trap_no, error_code, oldmask */
	ulong r[15], ip, flags, address;
};

#define LANDING

/* library_probes.S has put more on the stack. */
#define LIBRARY_CALLER ftrace_library_caller
#define LIBRARY_REGS_CALLER ftrace_library_regs_caller

#define CODE_PLACE ~1ul /* the other bit says Thumb */

/* Go on at another place, of either set. */
#define GOES_ON
static inline void goes_on(struct context *context, ulong ip)
{
	context->ip = ip & ~1ul;
	context->flags = (context->flags & ~0x20ul) | (ip & 1) << 5; /* T */
}

#define SIGNAL_MASK sizeof(struct context) /* bytes from a context to the signals that were blocked */

/* No place has a trap, since no call can be redirected: system_calls.c. */
#define LEAD_JUMP 4 /* bytes */
#define LEAD_REACH 0x1000000ul
#define LEAD_RESULT(call) ((call)->args[0])

#ifdef REGS
#include "ftrace_regs.h"

/* Of the push and the bl before `ip`, or in T32, which bit 0 says, the shorter push and the bl or blx. */
static inline ulong site_of(ulong ip)
{
	return ip & 1 ? ip - 1 - 6 : ip - 8;
}

static inline ulong function_of(ulong site)
{
	return site;
}

/* Where a function returns to, which trace_return() writes elsewhere. */
static inline void goes_back(struct ftrace_regs *regs, ulong parent)
{
	regs->pc = regs->lr = parent;
}
#endif

#endif
