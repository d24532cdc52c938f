/* SPDX-License-Identifier: MIT */
/* For a stub of one's own that sees and changes registers. It defines, in C,
 *
 *     void ftrace_regs_caller(struct fgraph_call *call, struct ftrace_regs *regs);
 *     void ftrace_regs_return(struct fgraph_call *call, struct ftrace_regs *regs);
 *
 * the first of which is called where a traced function is entered, and the second, which may be
 * missing, where it returns. What they change in `regs` takes effect: before the function's first
 * instruction, as with FTRACE_OPS_FL_SAVE_REGS and _IPMODIFY of the kernel, and in its caller.
 *
 *     gcc $(ftpatch --cflags) stub.c -o stub.elf
 *     ftpatch enable PROG --tracer ./stub.elf
 *
 * They must do without libc and thread-local storage, and without vector registers: those are not
 * saved. They are not called from within themselves: calls in a signal handler that interrupts one
 * are counted (`missed`). Names are the kernel's (include/linux/ftrace.h, ftrace_regs.h). */
#ifndef FTRACE_REGS_H
#define FTRACE_REGS_H

#if defined(__SSE__) || defined(__MMX__) || defined(__ARM_NEON)
#error "compile with -mgeneral-regs-only: vector registers hold arguments and results, and are not saved"
#endif
#if defined(__powerpc64__) && !defined(_SOFT_FLOAT)
#error "compile with -msoft-float -mno-altivec -mno-vsx: floating-point and vector registers hold arguments and results, and are not saved"
#endif
#ifdef __riscv_flen
#error "compile with -march=rv64ima -mabi=lp64: floating-point registers hold arguments and results, and are not saved"
#endif
#ifdef __loongarch_hard_float
#error "compile with -mabi=lp64s: floating-point registers hold arguments and results, and are not saved"
#endif

/* Else atomic operations are calls into libgcc; clang asks for -mno-outline-atomics. */
#if defined(__aarch64__) && !defined(__clang__)
#pragma GCC target("no-outline-atomics")
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A call of a traced function. Times are in nanoseconds, and those of CLOCK_MONOTONIC when the
 * program started; from then on the processor's own clock counts. */
struct fgraph_call {
	unsigned long func;   /* the function's address */
	unsigned long ip;     /* of its site, as `ftpatch list` has it */
	unsigned long parent; /* where it will return to */
	unsigned long data;   /* yours: 0 at the entry; the return finds what that left here */
	unsigned long long calltime, rettime; /* when it was entered and when it returned, 0: not yet */
	unsigned long long overrun; /* this thread's calls so far that were left alone: its ret_stack was full */
	unsigned long long missed;  /* ... and that came in a signal handler which had interrupted the tracer */
	unsigned long long lost;    /* calls of all threads before they were set up, or had no room */
	unsigned int depth;   /* calls that are pending below it in this thread */
	unsigned int tid;     /* the thread's id, 0: unknown */
};

/* All general registers, and of the flags those that code computes with. At the entry `ip` (`pc`) is
 * where the function goes on, behind its site; the stack pointer is for reading alone. At the return,
 * so is where it returns to. */
#if defined(__x86_64__)
struct ftrace_regs {
	unsigned long ax, cx, dx, bx, sp, bp, si, di, r8, r9, r10, r11, r12, r13, r14, r15;
	unsigned long flags;
	unsigned long reserved; /* not to be changed */
	unsigned long ip;
};
#elif defined(__i386__)
struct ftrace_regs {
	unsigned long ax, cx, dx, bx, sp, bp, si, di;
	unsigned long flags;
	unsigned long reserved; /* not to be changed */
	unsigned long ip;
};
#elif defined(__aarch64__)
/* As struct user_pt_regs. x9 is the site's, which has put the return address there; a function
 * returns to what regs[30] holds. */
struct ftrace_regs {
	unsigned long regs[31], sp, pc;
	unsigned long pstate; /* of which NZCV is there, and may be changed */
};
#elif defined(__riscv) && __riscv_xlen == 64
/* As struct user_regs_struct. t0 is the site's; a function returns to what ra holds. */
struct ftrace_regs {
	unsigned long pc, ra, sp, gp, tp, t0, t1, t2, s0, s1, a0, a1, a2, a3, a4, a5, a6, a7;
	unsigned long s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, t3, t4, t5, t6;
};
#elif defined(__powerpc64__) && _CALL_ELF == 2
/* Named as in struct pt_regs. gpr[0] is the site's; a function returns to what link holds. */
struct ftrace_regs {
	unsigned long gpr[32], nip, link, ctr, xer, ccr;
};
#elif defined(__arm__)
struct ftrace_regs {
	unsigned long r[13], sp, lr, pc, cpsr;
};
#elif defined(__s390x__)
/* As struct user_regs_struct begins. gprs[1] is the site's; a function returns to what gprs[14] holds. */
struct ftrace_regs {
	unsigned long psw_mask, psw_addr, gprs[16];
};
#elif defined(__loongarch_lp64)
/* Named as in struct pt_regs. regs[12], $t0, is the site's; a function returns to what regs[1] holds. */
struct ftrace_regs {
	unsigned long regs[32], csr_era;
};
#else
#error "registers are for x86-64, i386, arm, arm64, riscv64, s390x, ppc64le and loongarch64"
#endif

/* At the entry: where an argument is, of integers and pointers alone. Those that no register is left
 * for (behind the sixth of x86-64, the eighth of arm64, riscv64, ppc64le and loongarch64, the fifth of
 * s390x, the fourth of arm, all of i386) are on the stack. */
static inline unsigned long *ftrace_regs_argument(struct ftrace_regs *regs, unsigned int n)
{
#if defined(__x86_64__)
	switch (n) {
	case 0: return &regs->di;
	case 1: return &regs->si;
	case 2: return &regs->dx;
	case 3: return &regs->cx;
	case 4: return &regs->r8;
	case 5: return &regs->r9;
	}
	return (unsigned long *)regs->sp + 1 + (n - 6);
#elif defined(__i386__)
	return (unsigned long *)regs->sp + 1 + n;
#elif defined(__riscv)
	return n < 8 ? &regs->a0 + n : (unsigned long *)regs->sp + (n - 8);
#elif defined(__powerpc64__)
	return n < 8 ? &regs->gpr[3 + n] : (unsigned long *)regs->gpr[1] + 4 + n;
#elif defined(__arm__)
	return n < 4 ? &regs->r[n] : (unsigned long *)regs->sp + (n - 4);
#elif defined(__s390x__)
	return n < 5 ? &regs->gprs[2 + n] : (unsigned long *)regs->gprs[15] + 20 + (n - 5);
#elif defined(__loongarch_lp64)
	return n < 8 ? &regs->regs[4 + n] : (unsigned long *)regs->regs[3] + (n - 8);
#else
	return n < 8 ? &regs->regs[n] : (unsigned long *)regs->sp + (n - 8);
#endif
}

static inline unsigned long ftrace_regs_get_argument(struct ftrace_regs *regs, unsigned int n)
{
	return *ftrace_regs_argument(regs, n);
}

static inline unsigned long ftrace_regs_get_return_value(const struct ftrace_regs *regs)
{
#if defined(__aarch64__)
	return regs->regs[0];
#elif defined(__riscv)
	return regs->a0;
#elif defined(__powerpc64__)
	return regs->gpr[3];
#elif defined(__arm__)
	return regs->r[0];
#elif defined(__s390x__)
	return regs->gprs[2];
#elif defined(__loongarch_lp64)
	return regs->regs[4];
#else
	return regs->ax;
#endif
}

static inline void ftrace_regs_set_return_value(struct ftrace_regs *regs, unsigned long value)
{
#if defined(__aarch64__)
	regs->regs[0] = value;
#elif defined(__riscv)
	regs->a0 = value;
#elif defined(__powerpc64__)
	regs->gpr[3] = value;
#elif defined(__arm__)
	regs->r[0] = value;
#elif defined(__s390x__)
	regs->gprs[2] = value;
#elif defined(__loongarch_lp64)
	regs->regs[4] = value;
#else
	regs->ax = value;
#endif
}

static inline unsigned long ftrace_regs_get_stack_pointer(const struct ftrace_regs *regs)
{
#if defined(__powerpc64__)
	return regs->gpr[1];
#elif defined(__s390x__)
	return regs->gprs[15];
#elif defined(__loongarch_lp64)
	return regs->regs[3];
#else
	return regs->sp;
#endif
}

static inline unsigned long ftrace_regs_get_instruction_pointer(const struct ftrace_regs *regs)
{
#if defined(__aarch64__) || defined(__riscv) || defined(__arm__)
	return regs->pc;
#elif defined(__powerpc64__)
	return regs->nip;
#elif defined(__s390x__)
	return regs->psw_addr;
#elif defined(__loongarch_lp64)
	return regs->csr_era;
#else
	return regs->ip;
#endif
}

/* At the entry: let another function run in place of this one, with its arguments. */
static inline void ftrace_regs_set_instruction_pointer(struct ftrace_regs *regs, unsigned long ip)
{
#if defined(__aarch64__) || defined(__riscv) || defined(__arm__)
	regs->pc = ip;
#elif defined(__powerpc64__)
	regs->nip = ip;
#elif defined(__s390x__)
	regs->psw_addr = ip;
#elif defined(__loongarch_lp64)
	regs->csr_era = ip;
#else
	regs->ip = ip;
#endif
}

/* At the entry: let the function return at once, with the return value that is set. */
static inline void ftrace_override_function_with_return(struct ftrace_regs *regs)
{
	unsigned long at;

#if defined(__x86_64__)
	__asm__("jmp 2f\n1:\tret\n2:\tleaq 1b(%%rip), %0" : "=r"(at));
#elif defined(__i386__)
	__asm__("call 1f\n\tret\n1:\tpopl %0" : "=r"(at));
#elif defined(__riscv)
	__asm__("j 2f\n1:\tret\n2:\tlla %0, 1b" : "=r"(at));
#elif defined(__powerpc64__)
	__asm__("bcl 20, 31, 2f\n2:\tmflr %0\n\tb 3f\n1:\tblr\n3:\taddi %0, %0, 1b - 2b" : "=b"(at) : : "lr");
#elif defined(__arm__)
	__asm__("b 2f\n1:\tbx lr\n2:\tadr %0, 1b" : "=r"(at));
#ifdef __thumb__
	at |= 1;
#endif
#elif defined(__s390x__)
	__asm__("j 2f\n1:\tbr %%r14\n2:\tlarl %0, 1b" : "=d"(at));
#elif defined(__loongarch_lp64)
	__asm__("b 2f\n1:\tjr $ra\n2:\tla.pcrel %0, 1b" : "=r"(at));
#else
	__asm__("b 2f\n1:\tret\n2:\tadr %0, 1b" : "=r"(at));
#endif
	ftrace_regs_set_instruction_pointer(regs, at);
}

__attribute__((visibility("default"))) void ftrace_regs_caller(struct fgraph_call *call, struct ftrace_regs *regs);
__attribute__((visibility("default"))) void ftrace_regs_return(struct fgraph_call *call, struct ftrace_regs *regs);

#ifdef __cplusplus
}
#endif

#endif
