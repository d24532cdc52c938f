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

#define SYS_read 3
#define SYS_write 4
#define SYS_close 6
#define SYS_getpid 20
#define SYS_getppid 64
#define SYS_prctl 172
#define SYS_rt_sigaction 174
#define SYS_madvise 219
#define SYS_gettid 224
#define SYS_rt_sigprocmask 175
#define SYS_rt_sigpending 176
#define SYS_rt_sigtimedwait 177
#define SYS_rt_sigsuspend 179
#define SYS_munmap 91
#define SYS_open 5
#define SYS_readlink 85
#define SYS_unlink 10
#define SYS_ftruncate 93
#define SYS_mprotect 125
#define SYS_mremap 163
#define SYS_mmap 192 /* mmap2, which counts pages */
#define SYS_pselect6 308
#define SYS_ppoll 309
#define SYS_epoll_pwait 319
#define SYS_memfd_create 356
#define SYS_io_pgetevents 385
#define SYS_io_uring_enter 426
#define SYS_epoll_pwait2 441
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
#define SYS_nanosleep 162
#define SYS_membarrier 375
#define O_NOFOLLOW_ 0400000

#define FILE_OFFSET(bytes) ((bytes) >> 12)

/* Calls that differ from an older one only in how wide a time is (_time64), as that. */
#define CALL_LIKE(number)                                                                          \
	((number) == 413 ? SYS_pselect6 : (number) == 414 ? SYS_ppoll :                            \
	 (number) == 416 ? SYS_io_pgetevents : (number) == 421 ? SYS_rt_sigtimedwait : (number))

/* sigprocmask, whose masks have one word: glibc's getcontext() and setcontext(). */
#define SYS_sigprocmask 126

#define LEAD_JUMP 5 /* bytes */
#define LEAD_REACH ~0ul /* all of it */
#define LEAD_RESULT(call) ((call)->number)

/* As in the kernel, but unsigned: good until 2106. */
struct timespec_ {
	u32 seconds, nanoseconds;
};

/* In entry.S, as it needs all registers. */
long syscall6(long number, long a, long b, long c, long d, long e, long f)
	__attribute__((visibility("hidden")));

/* mmap2, whose last argument counts pages */
#define LENGTHS_IN_PAIRS /* of registers */
#include "file_calls.h"

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

/* Bytes that a file system has left for us, by fstatfs64 (<asm-generic/statfs.h>); 0 if it does not tell. */
static inline u64 room_left(long fd)
{
	struct {
		u32 type, size;
		u64 blocks, free, available;
		u32 more[13];
	} __attribute__((packed)) held;

	return syscall6(269, fd, sizeof(held), (long)&held, 0, 0, 0) ? 0 : held.available * held.size;
}

/* Without libgcc. */
u64 divide(u64 number, u64 by) __attribute__((visibility("hidden")));

#ifdef REGS
#define LANDS 0xfb1e0ff3u /* endbr32: f3 0f 1e fb */
#include "../x86/sites.h"
#endif

/* Saved by a detour (probes.S), and restored. */
struct registers {
	ulong general[8]; /* ax cx dx bx sp bp si di, as instructions number them */
	ulong flags;
	ulong back, place; /* of a hit: into the detour; number of the place */
};

static inline ulong stack_pointer(const struct registers *regs)
{
	return regs->general[4];
}

/* The location of the return address on function entry. It stays there. */
#define RETURNS_FROM_SLOT
static inline ulong *return_place(struct registers *regs)
{
	return (ulong *)regs->general[4];
}

/* 8 is the flags; PAIRED * (1 + h) + l a value of two words, of which h has the upper one. */
enum { PAIRED = 16 };

static inline ulong word_(const struct registers *regs, u32 number)
{
	return number < 8 ? regs->general[number] : regs->flags;
}

static inline u64 register_(const struct registers *regs, u32 number)
{
	if (number >= PAIRED)
		return (u64)word_(regs, number / PAIRED - 1) << 32 | word_(regs, number % PAIRED);
	return word_(regs, number);
}

/* st(0) to st(7), as a double, or from SINGLE on as a float; the low eight bytes of %xmm0 to %xmm7. */
enum { STACKED = 8, SINGLE = 16 };

u64 x87(u32 number, int single) __attribute__((visibility("hidden")));

static inline u64 vector_(u32 number)
{
	u64 held = 0;

	switch (number - STACKED) {
#define VECTOR(n) case n: __asm__ __volatile__("movlps %%xmm" #n ", %0" : "=m"(held)); break;
		VECTOR(0) VECTOR(1) VECTOR(2) VECTOR(3) VECTOR(4) VECTOR(5) VECTOR(6) VECTOR(7)
#undef VECTOR
	default:
		held = x87(number % STACKED, number >= SINGLE);
	}
	return held;
}

#define FRAME_POINTER(regs) ((regs)->general[5])
#define is_signed_handler is_handler
#define unsigned_(address) (address)
#define UNWOUND /* the calls that led to a hit can be recorded */
#define COPIED 0 /* register_() of the first register that is, with a stack */

/* int3 leaves the program counter behind itself. */
#define TRAP_BEHIND 1

void trap_restorer(void) __attribute__((visibility("hidden")));
#define TRAP_RESTORER trap_restorer

/* A signal handler's context, with SA_SIGINFO, up to the registers (arch/x86/include/uapi/asm). */
struct context {
	ulong before[12]; /* struct ucontext up to uc_mcontext, and of that gs to bp */
	ulong sp, bx, dx, cx, ax, trap, error, ip;
};

#define LANDING

#define SIGNAL_MASK ((5 + 22) * sizeof(ulong)) /* bytes from a context to the signals that were blocked: behind a struct sigcontext of 22 words */

/* Whether a signal arrived in the system call before `place`: it is made by the vdso, which has three
 * words on the stack then, and below them where it returns to. */
static inline int is_behind(const struct context *context, ulong place)
{
	const ulong *stack = (const ulong *)context->sp;

	return place && (context->ip == place || stack[3] == place || stack[0] == place);
}
#define IS_BEHIND(context, place) is_behind(context, place)

#endif
