// SPDX-License-Identifier: MIT
/* A program whose pages are all guarded: its own start, for crt files need not be. With STATIC it has
 * what a libc would bring, by the names that are looked for. */
#include <signal.h>
#include <sys/syscall.h>

#ifdef STATIC
static long call(long number, long a, long b, long c, long d)
{
	register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c, x3 __asm__("x3") = d;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	return x0;
}
struct kernels { void *handler; unsigned long flags; void *restorer; unsigned long mask; };
int sigaction(int signal, const struct sigaction *new, struct sigaction *old)
{
	struct kernels own = {(void *)new->sa_handler, 0, 0, 0};

	(void)old;
	return (int)call(SYS_rt_sigaction, signal, (long)&own, 0, 8);
}
int pthread_sigmask(int how, const sigset_t *new, sigset_t *old)
{
	return (int)call(SYS_rt_sigprocmask, how, (long)new, (long)old, 8);
}
#define _exit(code) (call(SYS_exit_group, code, 0, 0, 0), __builtin_unreachable())
#define getpid() call(SYS_getpid, 0, 0, 0, 0)
#define kill(pid, signal) call(SYS_kill, pid, signal, 0, 0)
#else
#include <unistd.h>
#endif
static volatile sig_atomic_t got;
static void caught(int signal) { got = signal; }
__attribute__((noinline)) int leaf(int n) { __asm__ volatile(""); return n * 3; }
__attribute__((noinline)) int work(int n) { return leaf(n) + leaf(n + 1); }
int (*volatile way)(int) = work;
__attribute__((used, noreturn)) void begin(void)
{
	struct sigaction new = {.sa_handler = caught};
	sigset_t all;
	int n;

	sigaction(SIGUSR1, &new, 0);
	for (n = 0; n < (int)sizeof(all); n++)
		((char *)&all)[n] = -1;
	pthread_sigmask(SIG_BLOCK, &all, 0);
	n = way(2);
	pthread_sigmask(SIG_UNBLOCK, &all, 0);
	kill(getpid(), SIGUSR1);
	_exit(n + got);
}
#ifdef STATIC /* no libc sets the thread pointer */
__asm__(".text\n.globl _start\n_start: bti jc\nmov x0, sp\nmsr tpidr_el0, x0\nbl begin\n");
#else
__asm__(".text\n.globl _start\n_start: bti jc\nbl begin\n");
#endif
