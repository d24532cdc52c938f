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

#include "checked_tid.h"

#include "generic_numbers.h"

#define O_NOFOLLOW_ 0400000

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

#include "file_calls.h"

/* Saved by a detour (probes.S), and restored but for gp and tp. */
struct registers {
	ulong x[32];       /* as instructions number them */
	ulong back, place; /* of a hit: into the detour; number of the place */
};

static inline ulong stack_pointer(const struct registers *regs)
{
	return regs->x[2];
}

/* The location of the return address on function entry. */
static inline ulong *return_place(struct registers *regs)
{
	return &regs->x[1];
}

#define FRAME_POINTER(regs) ((regs)->x[8])
#define is_signed_handler is_handler
#define unsigned_(address) (address)
#define SIGNED_BITS CALLS_BITS /* an address has no more */
#define UNWOUND /* the calls that led to a hit can be recorded */
#define FRAME_BELOW 16 /* RISC-V psABI, "Frame Pointer Convention" */
/* Those that calls keep, and ra: x1 to x4, x8, x9, x18 to x27. */
#define COPIED_REGISTER(n) ((n) < 4 ? (n) + 1 : (n) < 6 ? (n) + 4 : (n) + 12)
#define COPIED_LINK 0

static inline u64 register_(const struct registers *regs, u32 number)
{
	return regs->x[number & 31];
}

/* The low eight bytes of fa0 to fa7, which are f10 to f17, then of f0 to f9 and f18 to f31. Only who asks
 * for one needs the D extension. */
static inline u64 vector_(u32 number)
{
	u64 held = 0;

	switch (number < 8 ? number + 10 : number < 18 ? number - 8 : number) {
#define VECTOR(n) case n: __asm__ __volatile__(".option push\n\t.option arch, +d\n\tfmv.x.d %0, f" #n \
					       "\n\t.option pop" : "=r"(held)); break;
		VECTOR(0) VECTOR(1) VECTOR(2) VECTOR(3) VECTOR(4) VECTOR(5) VECTOR(6) VECTOR(7)
		VECTOR(8) VECTOR(9) VECTOR(10) VECTOR(11) VECTOR(12) VECTOR(13) VECTOR(14) VECTOR(15)
		VECTOR(16) VECTOR(17) VECTOR(18) VECTOR(19) VECTOR(20) VECTOR(21) VECTOR(22) VECTOR(23)
		VECTOR(24) VECTOR(25) VECTOR(26) VECTOR(27) VECTOR(28) VECTOR(29) VECTOR(30) VECTOR(31)
#undef VECTOR
	}
	return held;
}

/* A signal handler's context, up to the registers (arch/riscv/include/uapi/asm). */
struct context {
	ulong before[22]; /* struct ucontext up to uc_mcontext */
	ulong ip, x[31];  /* from ra on */
};

#define NO_RESTORER /* struct sigaction has none */
#define LANDING

/* library_probes.S has put more on the stack. */
#define LIBRARY_CALLER ftrace_library_caller
#define LIBRARY_REGS_CALLER ftrace_library_caller

#define SIGNAL_MASK 40 /* bytes from a context to the signals that were blocked */

/* No place has a trap, since no call can be redirected: system_calls.c. */
#define LEAD_JUMP 4 /* bytes */
#define LEAD_REACH 0x100000ul
#define LEAD_RESULT(call) ((call)->args[0])

#ifdef REGS
#include "ftrace_regs.h"

/* Of the auipc and jalr before `ip`. */
static inline ulong site_of(ulong ip)
{
	return ip - 8;
}

/* Of a site's function: before it there may be lpad (auipc x0). */
static inline ulong function_of(ulong site)
{
	const unsigned short *first = (const unsigned short *)site;

	return site % PAGE && (first[-2] & 0xfff) == 0x17 ? site - 4 : site;
}

/* Where a function returns to, which trace_return() writes elsewhere. */
static inline void goes_back(struct ftrace_regs *regs, ulong parent)
{
	regs->pc = regs->ra = parent;
}
#endif

#endif
