// SPDX-License-Identifier: MIT
/* All the ways to handle, ignore or block the signal of traps. Each is taken while breakpoints are met. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef TRAPPED
#define TRAPPED SIGILL
#endif
#define NOINLINE __attribute__((noinline, noipa))
#ifdef LIBRARY
#include <dlfcn.h>
extern void library_handles(void), library_blocks(void), library_by_number(void);
#endif

static volatile int handled, others;
static volatile long sum, calls;

NOINLINE long work(long n) { return sum += n * 3 + 1 + 0 * calls++; }
static void on_ill(int signal) { handled++; }
static void on_exit_99(int signal) { _exit(99); }
static void on_other(int signal) { work(1), others++; } /* of a thread, whose call nobody else's meets */

static void state(const char *name)
{
	sigset_t now;
	struct sigaction action;
	const char *handler;

	work(2);
	sigprocmask(SIG_SETMASK, 0, &now);
	sigaction(TRAPPED, 0, &action);
	handler = action.sa_handler == on_ill ? "on_ill" : action.sa_handler == SIG_IGN ? "ignored" :
		  action.sa_handler == SIG_DFL ? "default" : "other";
	printf("%s: %s flags %x blocked %d handled %d others %d\n", name, handler, action.sa_flags & ~0x4000000,
	       sigismember(&now, TRAPPED), handled, others);
}

static void sent(const char *name)
{
	raise(TRAPPED);
	state(name);
}

struct kernel_action {
	void *handler;
	unsigned long flags;
#ifndef __loongarch__
	void *restorer;
#endif
	unsigned long long mask;
};

static void *waiting(void *unused)
{
	struct pollfd none = {-1, 0, 0};
	sigset_t all;

	sigfillset(&all), sigdelset(&all, SIGUSR1);
	for (;;)
		ppoll(&none, 0, 0, &all);
	return 0;
}

static void cleaned(void *told) { printf("cleaned %s\n", (char *)told); }
static void *cancelled(void *told)
{
	struct timespec long_ = {100, 0};
	sigset_t all;

	sigfillset(&all);
	pthread_cleanup_push(cleaned, told);
	ppoll(0, 0, &long_, &all);
	pthread_cleanup_pop(0);
	return 0;
}

static void *blocked_thread(void *unused)
{
	state("thread");
	return 0;
}

int main(int argc, char **argv)
{
	struct timespec short_ = {0, 2000000};
	sigset_t ill, all, none, before;
	siginfo_t info;
	struct sigaction action;
	ucontext_t context;
	pthread_attr_t attr;
	pthread_t thread;
	jmp_buf out;
	struct kernel_action raw = {0}, old;
	unsigned long long bits = 1ull << (TRAPPED - 1);
	volatile int again = 0;
	int pid, status, fd;
	posix_spawnattr_t spawn;
	char *arguments[] = {argv[0], "child", 0}, *environment[] = {0};

	setvbuf(stdout, 0, _IONBF, 0);
	if (argc > 1 && !strcmp(argv[1], "child")) {
		printf("child\n");
		return 3;
	}
	sigemptyset(&ill), sigaddset(&ill, TRAPPED), sigfillset(&all), sigemptyset(&none);
	state("begin");
#ifdef LIBRARY
	library_handles();
	state("library handles");
	library_by_number(), state("library by number");
	library_blocks(), state("library blocks");
	if (argc > 1) {
		void *handle = dlopen(argv[1], RTLD_NOW);
		int n;

		((void (*)(void))dlsym(handle, "opened"))(), state("opened");
		for (n = 0; n < 3; n++) {
			dlclose(handle), handle = dlopen(argv[1], RTLD_NOW);
			((void (*)(void))dlsym(handle, "opened"))(), state("opened again");
		}
	}
	sigprocmask(SIG_UNBLOCK, &ill, 0);
#endif
	signal(TRAPPED, on_exit_99), work(1);
	signal(TRAPPED, on_ill), sent("signal");
	signal(SIGUSR1, on_other);
#ifdef __GLIBC__
	signal(TRAPPED, SIG_DFL), work(1), __sysv_signal(TRAPPED, on_ill), sent("__sysv_signal");
	sigset(TRAPPED, on_ill), sent("sigset");
	sighold(TRAPPED), state("sighold"), sigrelse(TRAPPED), state("sigrelse");
	sigset(TRAPPED, SIG_HOLD), sent("SIG_HOLD"), sigset(TRAPPED, on_ill), state("sigset");
	sigignore(TRAPPED), sent("sigignore");
	ssignal(TRAPPED, on_ill), sent("ssignal");
	siginterrupt(TRAPPED, 1), sent("siginterrupt");
	sigblock(sigmask(TRAPPED)), sent("sigblock"), sigsetmask(0), state("sigsetmask");
#endif
	memset(&action, 0, sizeof(action));
	action.sa_handler = on_ill, action.sa_flags = SA_RESETHAND;
	sigaction(TRAPPED, &action, 0), sent("sigaction"), signal(TRAPPED, on_ill);
	sigprocmask(SIG_BLOCK, &ill, &before), sent("sigprocmask"), sigprocmask(SIG_SETMASK, &before, 0);
	state("restored");
	pthread_sigmask(SIG_SETMASK, &all, &before), sent("pthread_sigmask");
	pthread_create(&thread, 0, blocked_thread, 0), pthread_join(thread, 0);
	pthread_sigmask(SIG_SETMASK, &before, 0), state("restored");
	/* What waits with a mask of its own, and handlers that run meanwhile. */
	sigprocmask(SIG_BLOCK, &all, &before), raise(SIGUSR1);
	sigdelset(&all, SIGUSR1);
	sigsuspend(&all), state("sigsuspend");
	raise(SIGUSR1), pselect(0, 0, 0, 0, &short_, &all), state("pselect");
	raise(SIGUSR1), ppoll(0, 0, &short_, &all), state("ppoll");
	fd = epoll_create1(0);
	struct epoll_event event;
	raise(SIGUSR1), epoll_pwait(fd, &event, 1, 2, &all), state("epoll_pwait");
	raise(TRAPPED), status = ppoll(0, 0, &short_, &none), printf("%d %d\n", status, errno == EINTR);
	state("pending");
	raise(TRAPPED), printf("waited %d\n", sigtimedwait(&ill, &info, &short_) == TRAPPED);
	sigprocmask(SIG_SETMASK, &before, 0), state("restored");
	action.sa_handler = on_other, action.sa_flags = 0, sigfillset(&action.sa_mask);
	sigaction(SIGUSR2, &action, 0), raise(SIGUSR2), sigaction(SIGUSR2, 0, &action);
	printf("mask %d\n", sigismember(&action.sa_mask, TRAPPED)), state("sa_mask");
	/* By number. */
	raw.handler = on_exit_99;
	raw.flags = 0;
#ifdef SA_RESTORER
	raw.flags = SA_RESTORER;
#endif
	errno = 0;
	printf("%ld", syscall(SYS_rt_sigaction, TRAPPED, 0, &old, 8L));
#ifndef __loongarch__
	raw.restorer = old.restorer;
#endif
	raw.flags = old.flags;
	printf(" %ld", syscall(SYS_rt_sigaction, TRAPPED, &raw, &old, 8L)), work(1);
	printf(" %ld", syscall(SYS_rt_sigaction, TRAPPED, &old, 0, 8L)), sent("syscall");
	printf("%ld", syscall(SYS_rt_sigprocmask, SIG_BLOCK, &bits, 0, 8L)), sent("by number");
	printf("%ld", syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &bits, 0, 8L)), state("by number");
	printf("%ld %d ", syscall(SYS_rt_sigaction, TRAPPED, 8L, 0, 8L), errno == EFAULT);
	printf("%ld %d ", syscall(SYS_rt_sigprocmask, SIG_BLOCK, 8L, 0, 8L), errno == EFAULT);
	printf("%ld %d ", syscall(SYS_rt_sigaction, TRAPPED, 0, 8L, 8L), errno == EFAULT);
	printf("%ld %d\n", syscall(SYS_rt_sigaction, TRAPPED, 0, 0, 9L), errno == EINVAL);
	syscall(SYS_gettid), state("other calls");
#ifdef __GLIBC__
	getcontext(&context);
	sigaddset(&context.uc_sigmask, TRAPPED);
	if (!again++)
		setcontext(&context);
	state("setcontext"), sigprocmask(SIG_UNBLOCK, &ill, 0);
	pthread_attr_init(&attr);
	pthread_attr_setsigmask_np(&attr, &all);
	pthread_create(&thread, &attr, blocked_thread, 0), pthread_join(thread, 0);
#endif
	alarm(600);
	pthread_create(&thread, 0, waiting, 0);
	usleep(2000), status = others, pthread_kill(thread, SIGUSR1);
	while (others == status)
		usleep(1000);
	state("another waits");
	pthread_create(&thread, 0, cancelled, "thread");
	usleep(2000), pthread_cancel(thread), pthread_join(thread, 0);
	again = 0;
	if (!sigsetjmp(out, 1))
		sigprocmask(SIG_BLOCK, &ill, 0), work(1), siglongjmp(out, 1);
	state("siglongjmp");
	/* What children do is not the parent's. */
	posix_spawnattr_init(&spawn), posix_spawnattr_setsigdefault(&spawn, &ill);
	posix_spawnattr_setsigmask(&spawn, &ill);
	posix_spawnattr_setflags(&spawn, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
	if (!posix_spawn(&pid, "/proc/self/exe", 0, &spawn, arguments, environment))
		waitpid(pid, &status, 0), printf("spawned %x\n", status);
	printf("system %d\n", system("true")), state("spawned");
	pid = fork();
	if (!pid) {
		signal(TRAPPED, SIG_IGN), work(1), sigprocmask(SIG_BLOCK, &ill, 0), work(1);
		_exit(7);
	}
	waitpid(pid, &status, 0), printf("%x\n", status), sent("forked");
	signal(TRAPPED, SIG_DFL);
	work(1);
	printf("calls %ld\n", calls);
	return 0;
}
