/* SPDX-License-Identifier: MIT */
/* arm64: clock, thread pointer, system calls. */
#ifndef FTPATCH_ARCH_H
#define FTPATCH_ARCH_H

/* There is no attribute for it: entry.S saves what C functions may change. */
#define REGISTERS

#define PAGE 65536ul /* the largest */

static inline u64 ticks(void)
{
	u64 now;

	__asm__ __volatile__("mrs %0, cntvct_el0" : "=r"(now));
	return now;
}

static inline u64 ticks_hz(void)
{
	u64 hz;

	__asm__("mrs %0, cntfrq_el0" : "=r"(hz));
	return hz;
}

#define KEEPS_HANDLER_OUT
static inline int is_handler(const ulong *at)
{
	ulong apart, held;

	__asm__ __volatile__("ldr %1, %2\n\tadr %0, return_to_handler\n\tsub %0, %0, %1\n\tmov %1, xzr"
			     : "=&r"(apart), "=&r"(held) : "m"(*at));
	return !apart;
}
/* The same of a return address that the function may have signed (pac-ret): in bits that addresses do not
 * use. */
static inline int is_signed_handler(const ulong *at)
{
	ulong apart, held;

	__asm__ __volatile__("ldr %1, %2\n\tadr %0, return_to_handler\n\teor %0, %0, %1\n\tmov %1, xzr"
			     : "=&r"(apart), "=&r"(held) : "m"(*at));
	return !(apart << 16);
}
static inline void put_handler(ulong *at)
{
	ulong handler;

	__asm__ __volatile__("adr %0, return_to_handler\n\tstr %0, %1\n\tmov %0, xzr"
			     : "=&r"(handler), "=m"(*at));
}

/* 0 before there is one, as the kernel starts programs. */
static inline ulong thread_pointer(void)
{
	ulong tp;

	__asm__ __volatile__("mrs %0, tpidr_el0" : "=r"(tp));
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

#include "checked_tid.h"

#include "generic_numbers.h"

#define O_NOFOLLOW_ 0100000

static inline long syscall6(long number, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ __volatile__("svc #0"
			     : "+r"(x0)
			     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			     : "memory");
	return x0;
}

#include "file_calls.h"

#define LEAD_JUMP 4 /* bytes */
#define LEAD_REACH 0x7f00000ul
#define LEAD_RESULT(call) ((call)->args[0])

/* Saved by a detour (entry.S), and restored. */
struct registers {
	ulong x[31], sp;
	ulong flags;       /* nzcv */
	ulong back, place; /* of a hit: into the detour; number of the place */
	ulong unused;
};

static inline ulong stack_pointer(const struct registers *regs)
{
	return regs->sp;
}

/* The location of the return address on function entry. */
static inline ulong *return_place(struct registers *regs)
{
	return &regs->x[30];
}

#define FRAME_POINTER(regs) ((regs)->x[29])
#define unsigned_(address) ((address) << 16 >> 16) /* a return address without its signature */
#define SIGNED_BITS 55 /* with it: what is above is an address's tag, or the kernel's */
#define UNWOUND /* the calls that led to a hit can be recorded */
#define COPIED 16 /* register_() of the first register that is, with a stack: x16 to x30, and sp */

/* 31 is sp, 32 the flags. */
static inline u64 register_(const struct registers *regs, u32 number)
{
	return number < 31 ? regs->x[number] : number == 31 ? regs->sp : regs->flags;
}

/* The low eight bytes of v0 to v31. */
static inline u64 vector_(u32 number)
{
	u64 held = 0;

	switch (number) {
#define VECTOR(n) case n: __asm__ __volatile__("fmov %0, d" #n : "=r"(held)); break;
		VECTOR(0) VECTOR(1) VECTOR(2) VECTOR(3) VECTOR(4) VECTOR(5) VECTOR(6) VECTOR(7)
		VECTOR(8) VECTOR(9) VECTOR(10) VECTOR(11) VECTOR(12) VECTOR(13) VECTOR(14) VECTOR(15)
		VECTOR(16) VECTOR(17) VECTOR(18) VECTOR(19) VECTOR(20) VECTOR(21) VECTOR(22) VECTOR(23)
		VECTOR(24) VECTOR(25) VECTOR(26) VECTOR(27) VECTOR(28) VECTOR(29) VECTOR(30) VECTOR(31)
#undef VECTOR
	}
	return held;
}

/* A signal handler's context, up to the registers (arch/arm64/include/uapi/asm). */
struct context {
	ulong before[23]; /* struct ucontext up to uc_mcontext, and of that the fault's address */
	ulong x[31], sp, ip, state;
};

/* A function that is called by a register or by the kernel: the program's pages may be guarded, ours are
 * then (Arm ARM, "Effective BTYPE"; setup_return() of arch/arm64/kernel/signal.c sets it to c). */
#define LANDING __attribute__((target("branch-protection=bti")))
#define BTYPE (3ul << 10)

/* Continue elsewhere, without having branched there: a trap may be at a branch target. */
#define GOES_ON
static inline void goes_on(struct context *context, ulong ip)
{
	context->ip = ip;
	context->state &= ~BTYPE;
}

/* library_probes.S has put more on the stack. */
#define LIBRARY_CALLER ftrace_library_caller
#define LIBRARY_REGS_CALLER ftrace_library_caller

#define SIGNAL_MASK 40 /* bytes from a context to the signals that were blocked */

#ifdef REGS
#include "ftrace_regs.h"

/* Of the bl before `ip`. */
static inline ulong site_of(ulong ip)
{
	return ip - 4;
}

/* Of a site's function: before the bl there is `mov x9, x30`, and perhaps a landing pad (bti c, bti jc). */
static inline ulong function_of(ulong site)
{
	const u32 *first = (const u32 *)(site - 4);

	return (ulong)first % PAGE && (first[-1] | 0x80) == 0xd50324dfu ? site - 8 : site - 4;
}

/* Where a function returns to, which trace_return() writes elsewhere. */
static inline void goes_back(struct ftrace_regs *regs, ulong parent)
{
	regs->pc = regs->regs[30] = parent;
}
#endif

#endif
