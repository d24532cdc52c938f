/* SPDX-License-Identifier: MIT */
/* s390x: clock, thread pointer, system calls. */
#ifndef FTPATCH_ARCH_H
#define FTPATCH_ARCH_H

/* There is no attribute for it: entry.S saves what C functions may change. */
#define REGISTERS

#define PAGE 4096ul

/* The time of day: bit 51 is a microsecond (z/Architecture Principles of Operation, chapter 4, "Time-of-Day
 * Clock"). Readers take ticks for signed numbers. */
static inline u64 ticks(void)
{
	u64 now;

	__asm__ __volatile__("stckf %0" : "=Q"(now) : : "cc");
	return now >> 1;
}

static inline u64 ticks_hz(void)
{
	return 2048000000;
}

/* 0 before there is one, as the kernel starts programs. */
static inline ulong thread_pointer(void)
{
	ulong tp;

	__asm__ __volatile__("ear %0, %%a0\n\tsllg %0, %0, 32\n\tear %0, %%a1" : "=d"(tp));
	return tp;
}

static inline void thread_pointer_known(ulong hwcap2, int dynamic)
{
	(void)hwcap2;
	(void)dynamic;
}

/* Offset of tid in libc's struct pthread, from the thread pointer. */
#define TID_FIRST 0
#define TID_LAST 1024
#define TID_STEP 4

/* The sixth argument is at the CFA, where only a caller's caller has anything. */
#define ARG_REGISTERS 5    /* words of arguments in registers */
#define STACK_ARGUMENTS 160 /* from the slot to the others: behind the register save area */

/* arch/s390/include/uapi/asm: unistd_64.h (made of syscall.tbl), fcntl.h, mman.h, socket.h */
#define SYS_read 3
#define SYS_write 4
#define SYS_close 6
#define SYS_clock_gettime 260
#define SYS_prctl 172
#define SYS_getpid 20
#define SYS_getppid 64
#define SYS_gettid 236
#define SYS_rt_sigprocmask 175
#define SYS_madvise 219
#define SYS_getcwd 183
#define SYS_getuid 199
#define SYS_socket 359
#define SYS_connect 362
#define SYS_recvmsg 372
#define SYS_setsockopt 366
#define SYS_getsockopt 365
#define SYS_statx 379
#define SYS_getrlimit 191
#define SYS_nanosleep 162
#define SYS_membarrier 356
#define SYS_tgkill 241
#define SYS_rt_sigaction 174
#define SYS_mprotect 125
#define SYS_mmap 90
#define SYS_munmap 91
#define SYS_mremap 163
#define SYS_openat 288
#define SYS_readlinkat 298
#define SYS_unlinkat 294
#define SYS_ftruncate 93
#define SYS_fallocate 314
#define SYS_epoll_pwait 312
#define SYS_epoll_pwait2 441
#define SYS_io_pgetevents 382
#define SYS_io_uring_enter 426
#define SYS_memfd_create 350
#define SYS_ppoll 302
#define SYS_prctl 172
#define SYS_pselect6 301
#define SYS_rt_sigpending 176
#define SYS_rt_sigsuspend 179
#define SYS_rt_sigtimedwait 177
#define SYS_fstatfs 100
#define STATFS_WORD u32 /* arch/s390/include/uapi/asm/statfs.h */
#define MMAP_BY_MEMORY
#define O_NOFOLLOW_ 0400000

static inline long syscall6(long number, long a, long b, long c, long d, long e, long f)
{
	register long r1 __asm__("r1") = number;
	register long r2 __asm__("r2") = a;
	register long r3 __asm__("r3") = b;
	register long r4 __asm__("r4") = c;
	register long r5 __asm__("r5") = d;
	register long r6 __asm__("r6") = e;
	register long r7 __asm__("r7") = f;

	__asm__ __volatile__("svc 0"
			     : "+d"(r2)
			     : "d"(r1), "d"(r3), "d"(r4), "d"(r5), "d"(r6), "d"(r7)
			     : "memory", "cc");
	return r2;
}

/* The arguments are in memory: struct s390_mmap_arg_struct of arch/s390/kernel/syscall.c. */
static inline long mmap_(ulong at, ulong size, int protection, int flags, long fd)
{
	long args[6] = {(long)at, (long)size, protection, flags, fd, 0};

	return syscall6(SYS_mmap, (long)args, 0, 0, 0, 0, 0);
}

#include "file_calls.h"

/* Saved by a detour (probes.S), and restored. */
struct registers {
	ulong r[16];
	ulong back, place; /* of a hit: into the detour; number of the place */
	ulong flags;       /* of a hit: the condition code, as `ipm` has it */
};

static inline ulong stack_pointer(const struct registers *regs)
{
	return regs->r[15];
}

/* The location of the return address on function entry. */
static inline ulong *return_place(struct registers *regs)
{
	return &regs->r[14];
}

#define FRAME_POINTER(regs) 0ul /* frames are not linked, unless the compiler is told to (-mbackchain) */
/* s390x ELF ABI, "Register Save Area": r14 is at 112; -mpacked-stack has it further up. */
#define SLOT_OF(at) ((at) - 152)
#define is_signed_handler is_handler
#define unsigned_(address) (address)
#define SIGNED_BITS CALLS_BITS /* an address has no more */
#define UNWOUND /* the calls that led to a hit can be recorded */
#define COPIED 0 /* all */
#define COPIED_LINK 14

static inline u64 register_(const struct registers *regs, u32 number)
{
	return regs->r[number & 15];
}

/* A floating-point register, of which a float is the upper half: there, numbers from 16 on are floats. */
static inline u64 vector_(u32 number)
{
	u64 held = 0;

	switch (number & 15) {
#define VECTOR(n) case n: __asm__ __volatile__("std %%f" #n ", %0" : "=R"(held)); break;
		VECTOR(0) VECTOR(1) VECTOR(2) VECTOR(3) VECTOR(4) VECTOR(5) VECTOR(6) VECTOR(7)
		VECTOR(8) VECTOR(9) VECTOR(10) VECTOR(11) VECTOR(12) VECTOR(13) VECTOR(14) VECTOR(15)
#undef VECTOR
	}
	return number > 15 ? held >> 32 : held;
}

/* A signal handler's context, up to the registers (arch/s390/include/uapi/asm/ucontext.h). */
struct context {
	ulong before[5]; /* struct ucontext up to uc_mcontext */
	ulong mask, ip, r[16];
};

#define LANDING

/* library_probes.S has put more on the stack. */
#define LIBRARY_CALLER ftrace_library_caller
#define LIBRARY_REGS_CALLER ftrace_library_caller

#define SIGNAL_MASK 384 /* bytes from a context to the signals that were blocked */

/* No place has a trap, since no call can be redirected: system_calls.c. */
#define LEAD_JUMP 6 /* bytes */
#define LEAD_REACH 0x100000000ul
#define LEAD_RESULT(call) ((call)->args[0])

#ifdef REGS
#include "ftrace_regs.h"

/* Of the brasl before `ip`. */
static inline ulong site_of(ulong ip)
{
	return ip - 6;
}

static inline ulong function_of(ulong site)
{
	return site;
}

/* Where a function returns to, which trace_return() writes elsewhere. */
static inline void goes_back(struct ftrace_regs *regs, ulong parent)
{
	regs->psw_addr = regs->gprs[14] = parent;
}
#endif

#endif
