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

#include "checked_tid.h"

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
#define SYS_openat 286
#define SYS_readlinkat 296
#define SYS_unlinkat 292
#define SYS_ftruncate 93
#define SYS_fallocate 309
#define SYS_fstatfs 100
#define SYS_epoll_pwait 303
#define SYS_epoll_pwait2 441
#define SYS_io_pgetevents 388
#define SYS_io_uring_enter 426
#define SYS_memfd_create 360
#define SYS_ppoll 281
#define SYS_pselect6 280
#define SYS_rt_sigpending 175
#define SYS_rt_sigsuspend 178
#define SYS_rt_sigtimedwait 176
#define O_NOFOLLOW_ 0100000
#define MAP_NORESERVE_ 0x40
#define SO_PEERCRED 21
#define SO_RCVTIMEO 18
#define SO_SNDTIMEO 19

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

#include "file_calls.h"

/* Saved by a detour (probes.S), and restored but for r1 and r13. */
enum register_number { REGISTER_LR = 32, REGISTER_CTR, REGISTER_CR, REGISTER_XER, REGISTERS_KEPT };
struct registers {
	ulong r[36];       /* as instructions number them; then those above */
	ulong back, place; /* of a hit: into the detour; number of the place */
};

static inline ulong stack_pointer(const struct registers *regs)
{
	return regs->r[1];
}

/* The location of the return address on function entry. */
static inline ulong *return_place(struct registers *regs)
{
	return &regs->r[REGISTER_LR];
}

/* The back chain leads along the callers' frames; each has the return address of whoever it calls. */
#define FRAME_POINTER(regs) (*(volatile const ulong *)(regs)->r[1])
#define FRAME_CHAIN
#define FRAME_RETURN 16 /* psABI, ELFv2, 2.2.2.1: "LR Save Doubleword" */
#define SLOT_OF(at) ((at) - FRAME_RETURN)
#define is_signed_handler is_handler
#define unsigned_(address) (address)
#define SIGNED_BITS CALLS_BITS /* an address has no more */
#define UNWOUND /* the calls that led to a hit can be recorded */
/* LR, r1, and of those that calls keep r18 to r31. */
#define COPIED_REGISTER(n) ((n) < 1 ? REGISTER_LR : (n) < 2 ? 1 : (n) + 16)
#define COPIED_LINK 0

static inline u64 register_(const struct registers *regs, u32 number)
{
	return regs->r[number < REGISTERS_KEPT ? number : 0];
}

/* The double in f1 to f31, then f0; the same again, as the float that it is. No code of the runtime uses
 * them, so only here may the assembler have them. */
static inline u64 vector_(u32 number)
{
	u64 held = 0;

	switch (number) {
#define AS(n, insn) __asm__ __volatile__(insn " " #n ", %0" : "=m"(held)); break;
#define VECTOR(n) case ((n) - 1) & 31: AS(n, "stfd%U0%X0") case (((n) - 1) & 31) + 32: AS(n, "stfs%U0%X0")
		VECTOR(0) VECTOR(1) VECTOR(2) VECTOR(3) VECTOR(4) VECTOR(5) VECTOR(6) VECTOR(7)
		VECTOR(8) VECTOR(9) VECTOR(10) VECTOR(11) VECTOR(12) VECTOR(13) VECTOR(14) VECTOR(15)
		VECTOR(16) VECTOR(17) VECTOR(18) VECTOR(19) VECTOR(20) VECTOR(21) VECTOR(22) VECTOR(23)
		VECTOR(24) VECTOR(25) VECTOR(26) VECTOR(27) VECTOR(28) VECTOR(29) VECTOR(30) VECTOR(31)
#undef VECTOR
#undef AS
	}
	return held;
}

/* A signal handler's context, up to the registers (arch/powerpc/include/uapi/asm: ucontext.h, sigcontext.h,
 * elf.h for gp_regs). */
struct context {
	ulong before[29]; /* struct ucontext up to its gp_regs */
	ulong r[32], ip;
};

/* library_probes.S has put more into the detour's frame. */
#define LIBRARY_CALLER ftrace_library_caller
#define LIBRARY_REGS_CALLER ftrace_library_caller

#define SIGNAL_MASK 40 /* bytes from a context to the signals that were blocked */

/* No place has a trap, since no call is redirected: system_calls.c. */
#define LEAD_JUMP 4 /* bytes */
#define LEAD_REACH 0x2000000ul
#define LEAD_RESULT(call) ((call)->args[0])

#ifdef REGS
#include "ftrace_regs.h"

/* Of the bl before `ip`. */
static inline ulong site_of(ulong ip)
{
	return ip - 4;
}

ulong function_of(ulong site) __attribute__((visibility("hidden")));

/* Where a function returns to, which trace_return() writes elsewhere. */
static inline void goes_back(struct ftrace_regs *regs, ulong parent)
{
	regs->nip = regs->link = parent;
}
#endif

#endif
