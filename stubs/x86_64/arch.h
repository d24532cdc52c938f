/* SPDX-License-Identifier: MIT */
/* x86-64: clock, thread pointer, system calls. */
#ifndef FTPATCH_ARCH_H
#define FTPATCH_ARCH_H

/* A function that leaves every register but the flags as it was (gcc, "x86 Function Attributes"). */
#define REGISTERS __attribute__((no_caller_saved_registers))

#define PAGE 4096ul

#define CLOCK_INSTRUCTION 0x310f /* rdtsc: 0f 31 */

static inline u64 ticks(void)
{
	u32 low, high;

	__asm__ __volatile__("rdtsc" : "=a"(low), "=d"(high));
	return (u64)high << 32 | low;
}

static inline u64 ticks_hz(void)
{
	return 0; /* unknown without measuring */
}

extern u32 arch_tls __attribute__((visibility("hidden")));
enum { TLS_UNKNOWN, TLS_MAYBE, TLS_THERE };

/* 0 before there is one. %fs:0 holds it (psABI, "Thread-Local Storage"), which is only there to be
 * read once libc has set it up; the instruction that can be used even before takes longer. */
static inline ulong thread_pointer(void)
{
	ulong tp = 0;

	if (unlikely(arch_tls != TLS_THERE)) {
		if (arch_tls == TLS_MAYBE)
			__asm__ __volatile__("rdfsbase %0" : "=r"(tp));
		if (tp)
			arch_tls = TLS_THERE;
		return tp;
	}
	__asm__ __volatile__("movq %%fs:0, %0" : "=r"(tp));
	return tp;
}

/* `dynamic`: a dynamic linker has run, and set it up. Else the instruction has to tell; AT_HWCAP2
 * bit 1 says that the kernel lets us use it (Documentation/x86/x86_64/fsgs.rst, since v5.9). */
static inline void thread_pointer_known(ulong hwcap2, int dynamic)
{
	arch_tls = dynamic ? TLS_THERE : hwcap2 & 2 ? TLS_MAYBE : TLS_UNKNOWN;
}

/* Offset of tid in glibc's struct pthread, from the thread pointer. */
#define TID_FIRST 0
#define TID_LAST 1024
#define TID_STEP 4

/* return_to_handler - *at. Neither here nor where it is added is the address itself in a register: a
 * page fault at the store is where signals are delivered most, and their frames hold all registers. */
#define KEEPS_HANDLER_OUT
static inline ulong to_handler(const ulong *at)
{
	ulong apart;

	__asm__ __volatile__("leaq return_to_handler-1(%%rip), %0\n\tsubq %1, %0\n\tincq %0"
			     : "=&r"(apart) : "m"(*at) : "cc");
	return apart;
}
static inline int is_handler(const ulong *at)
{
	return !to_handler(at);
}
#define RETURNS_FROM_SLOT
static inline void put_handler(ulong *at)
{
	__asm__ __volatile__("addq %1, %0" : "+m"(*at) : "r"(to_handler(at)) : "cc");
}

#define SYS_read 0
#define SYS_write 1
#define SYS_close 3
#define SYS_rt_sigaction 13
#define SYS_madvise 28
#define SYS_getpid 39
#define SYS_getppid 110
#define SYS_prctl 157
#define SYS_gettid 186
#define SYS_rt_sigprocmask 14
#define SYS_clock_gettime 228
#define SYS_tgkill 234
#define SYS_fcntl 72
#define SYS_clone 56
#define SYS_wait4 61
#define SYS_exit_group 231
#define SYS_perf_event_open 298
#define SYS_getcwd 79
#define SYS_getuid 102
#define SYS_socket 41
#define SYS_connect 42
#define SYS_recvmsg 47
#define SYS_setsockopt 54
#define SYS_getsockopt 55
#define SYS_statx 332
#define SYS_getrlimit 97
#define SYS_nanosleep 35
#define SYS_membarrier 324
#define RESTORER clock_restorer
void clock_restorer(void) __attribute__((visibility("hidden")));
#define SYS_mmap 9
#define SYS_open 2
#define SYS_readlink 89
#define SYS_unlink 87
#define SYS_ftruncate 77
#define SYS_fallocate 285
#define SYS_fstatfs 138
#define SYS_munmap 11
#define SYS_mremap 25
#define SYS_rt_sigpending 127
#define SYS_rt_sigtimedwait 128
#define SYS_rt_sigsuspend 130
#define SYS_pselect6 270
#define SYS_ppoll 271
#define SYS_epoll_pwait 281
#define SYS_memfd_create 319
#define SYS_io_pgetevents 333
#define SYS_io_uring_enter 426
#define SYS_epoll_pwait2 441
#define LEAD_JUMP 5 /* bytes */
#define LEAD_REACH 0x7f000000ul
#define LEAD_RESULT(call) ((call)->number)
#define O_NOFOLLOW_ 0400000

static inline long syscall6(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long ret;

	__asm__ __volatile__("syscall"
			     : "=a"(ret)
			     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			     : "rcx", "r11", "memory");
	return ret;
}

#include "file_calls.h"

#define SYS_mprotect 10

/* Saved by a detour (entry.S), and restored. */
struct registers {
	ulong general[16]; /* ax cx dx bx sp bp si di r8 ... r15, as instructions number them */
	ulong flags;
	ulong back, place; /* of a hit: into the detour; number of the place */
};

static inline ulong stack_pointer(const struct registers *regs)
{
	return regs->general[4];
}

/* The location of the return address on function entry. */
static inline ulong *return_place(struct registers *regs)
{
	return (ulong *)regs->general[4];
}

#define FRAME_POINTER(regs) ((regs)->general[5])
#define UNWOUND /* the calls that led to a hit can be recorded */
#define COPIED 0 /* register_() of the first register that is, with a stack */
#define is_signed_handler is_handler
#define unsigned_(address) (address)
#define SIGNED_BITS CALLS_BITS

/* 16 is the flags. */
static inline u64 register_(const struct registers *regs, u32 number)
{
	return number < 16 ? regs->general[number] : regs->flags;
}

/* The low eight bytes of %xmm0 to %xmm15. */
static inline u64 vector_(u32 number)
{
	u64 held = 0;

	switch (number) {
#define VECTOR(n) case n: __asm__ __volatile__("movq %%xmm" #n ", %0" : "=r"(held)); break;
		VECTOR(0) VECTOR(1) VECTOR(2) VECTOR(3) VECTOR(4) VECTOR(5) VECTOR(6) VECTOR(7)
		VECTOR(8) VECTOR(9) VECTOR(10) VECTOR(11) VECTOR(12) VECTOR(13) VECTOR(14) VECTOR(15)
#undef VECTOR
	}
	return held;
}

void trap_restorer(void) __attribute__((visibility("hidden")));
#define TRAP_RESTORER trap_restorer

/* A signal handler's context, up to the registers (arch/x86/include/uapi/asm). */
struct context {
	ulong before[5]; /* struct ucontext up to uc_mcontext */
	ulong r8, r9, r10, r11, r12, r13, r14, r15, di, si, bp, bx, dx, ax, cx, sp, ip;
};

/* The general ones when a signal came. */
static inline void registers_at(const struct context *c, struct registers *regs)
{
	const ulong held[16] = {c->ax, c->cx, c->dx, c->bx, c->sp,  c->bp,  c->si,  c->di,
				c->r8, c->r9, c->r10, c->r11, c->r12, c->r13, c->r14, c->r15};
	u32 i;

	for (i = 0; i < 16; i++)
		regs->general[i] = held[i];
}

#define LANDING

/* Let a handler run as if the kernel had called it, with its own way back: nothing of ours is on the
 * stack then, and may be taken out meanwhile. The signal's frame (struct rt_sigframe) begins with
 * that, before its context. */
#define HANDS_ON
static inline void __attribute__((noreturn)) hand_on(void *handler, void *restorer, int signal, void *info,
						    struct context *context)
{
	ulong *frame = (ulong *)context - 1;

	if (restorer)
		*frame = (ulong)restorer;
	__asm__ __volatile__("movq %0, %%rsp\n\tnotrack jmp *%1"
			     : : "r"(frame), "r"(handler), "D"(signal), "S"(info), "d"(context), "a"(0)
			     : "memory");
	__builtin_unreachable();
}

#define SIGNAL_MASK 296 /* bytes from a context to the signals that were blocked */

/* As the vdso's getcpu(): the limit of a segment that is there for it (arch/x86/include/asm/segment.h,
 * vdso_read_cpunode()). It needs no instruction that older processors lack, or a sandbox takes away. */
static inline u32 cpu_number(void)
{
	ulong held = 0;
	u8 there;

	__asm__("lsl %2, %0" : "+r"(held), "=@ccz"(there) : "r"(0x7bul));
	return there ? (u32)held & 0xfff : ~0u;
}

#ifdef REGS
#define LANDS 0xfa1e0ff3u /* endbr64: f3 0f 1e fa */
#include "../x86/sites.h"
#endif

#endif
