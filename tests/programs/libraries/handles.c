// SPDX-License-Identifier: MIT
/* A library that handles the signal of traps itself: nobody survives that. Twice: -DOPENED is opened later. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef TRAPPED
#define TRAPPED SIGILL
#endif

static void gone(int signal) { _exit(99); }

struct kernel_action {
	void *handler;
	unsigned long flags;
#ifndef __loongarch__
	void *restorer;
#endif
	unsigned long long mask;
};

/* As sanitizers and languages with a runtime of their own do it. */
static long system_call(long number, long a, long b, long c, long d)
{
	long ret;
#ifdef __x86_64__
	register long r10 __asm__("r10") = d;

	__asm__ __volatile__("syscall" : "=a"(ret) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
			     : "rcx", "r11", "memory");
#elif defined(__i386__)
	__asm__ __volatile__("int $0x80" : "=a"(ret) : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d) : "memory");
#elif defined(__loongarch__)
	register long a7 __asm__("$a7") = number, a0 __asm__("$a0") = a, a1 __asm__("$a1") = b;
	register long a2 __asm__("$a2") = c, a3 __asm__("$a3") = d;

	__asm__ __volatile__("syscall 0" : "+r"(a0) : "r"(a7), "r"(a1), "r"(a2), "r"(a3)
			     : "$t0", "$t1", "$t2", "$t3", "$t4", "$t5", "$t6", "$t7", "$t8", "memory");
	ret = a0;
#else
	register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c, x3 __asm__("x3") = d;

	__asm__ __volatile__("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	ret = x0;
#endif
	return ret;
}

static void by_number(void)
{
	struct kernel_action action = {0};
	unsigned long long bits = ~0ull;

	system_call(SYS_rt_sigaction, TRAPPED, 0, (long)&action, 8);
	action.handler = gone;
	system_call(SYS_rt_sigaction, TRAPPED, (long)&action, 0, 8);
	system_call(SYS_rt_sigprocmask, SIG_BLOCK, (long)&bits, 0, 8);
}

#ifdef OPENED
__attribute__((constructor)) static void begins(void) { by_number(); }
void opened(void) { by_number(); }
#else
__attribute__((constructor)) static void begins(void) { signal(TRAPPED, gone); }
void library_handles(void)
{
	struct sigaction action = {.sa_handler = gone};

	sigaction(TRAPPED, &action, 0);
}
void library_by_number(void) { by_number(); }
void library_blocks(void)
{
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, 0);
}
#endif
