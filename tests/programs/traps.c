/* A program that uses SIGTRAP itself: handles, ignores, blocks and sends it. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>
#include "check.h"

static volatile int traps, told, others;
static sigjmp_buf out;
long volatile sum;

NOINLINE long work(long n) { return sum += n * 3 + 1; }
static void on_trap(int signal) { traps++; }
static void on_info(int signal, siginfo_t *info, void *context)
{
	told += info->si_signo == SIGTRAP && info->si_code <= 0 && info->si_pid == getpid();
}
static void on_other(int signal) { others++; work(1); }
static void leaving(int signal) { siglongjmp(out, 1); }

static void act(int signal, void (*handler)(int), int flags)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags};

	CHECK(!sigaction(signal, &action, 0));
}

static int is_blocked(void)
{
	sigset_t now;

	CHECK(!pthread_sigmask(SIG_SETMASK, 0, &now));
	return sigismember(&now, SIGTRAP);
}

static void *thread(void *unused)
{
	work(7);
	return (void *)(long)is_blocked();
}

int main(int argc, char **argv)
{
	struct sigaction action = {0}, old;
	sigset_t all, before;
	pthread_t other;
	void *value;

	act(SIGTRAP, on_trap, 0);
	work(1);
	raise(SIGTRAP);
	work(2);
	CHECK(traps == 1);
	CHECK(!sigaction(SIGTRAP, 0, &old) && old.sa_handler == on_trap);

	action.sa_sigaction = on_info;
	action.sa_flags = SA_SIGINFO;
	CHECK(!sigaction(SIGTRAP, &action, &old) && old.sa_handler == on_trap);
	kill(getpid(), SIGTRAP);
	CHECK(told == 1 && traps == 1);

	CHECK(signal(SIGTRAP, SIG_IGN) == (void *)on_info);
	raise(SIGTRAP);
	work(3);
	CHECK(signal(SIGTRAP, on_trap) == SIG_IGN);

	/* Blocked, it waits; breakpoints do not. */
	sigfillset(&all);
	CHECK(!sigprocmask(SIG_SETMASK, &all, &before));
	CHECK(!sigismember(&before, SIGTRAP) && is_blocked());
	work(4);
	raise(SIGTRAP);
	CHECK(traps == 1);
	CHECK(!pthread_sigmask(SIG_SETMASK, &before, 0));
	CHECK(traps == 2 && !is_blocked());

	/* In a handler that blocks all. */
	action = (struct sigaction){.sa_handler = on_other};
	sigfillset(&action.sa_mask);
	CHECK(!sigaction(SIGUSR1, &action, 0));
	raise(SIGUSR1);
	CHECK(others == 1 && !sigaction(SIGUSR1, 0, &old) && sigismember(&old.sa_mask, SIGTRAP));

	/* Once, and then as it was. */
	act(SIGTRAP, on_trap, SA_RESETHAND);
	raise(SIGTRAP);
	CHECK(traps == 3 && !sigaction(SIGTRAP, 0, &old) && old.sa_handler == SIG_DFL);

	act(SIGTRAP, leaving, 0);
	if (!sigsetjmp(out, 1)) {
		work(5);
		raise(SIGTRAP);
	}
	work(6);
	act(SIGTRAP, on_trap, 0);
#ifdef __x86_64__
	__asm__ __volatile__("int3"); /* its own, beside others */
	CHECK(traps == 4);
#endif
	CHECK(!pthread_create(&other, 0, thread, 0) && !pthread_join(other, &value) && !value);
	printf("%ld\n", sum);
	fflush(stdout);
	if (is(argc, argv, "die")) {
		signal(SIGTRAP, SIG_DFL);
		raise(SIGTRAP);
	}
	return 0;
}
