// SPDX-License-Identifier: MIT
/* A program that uses the signals of breakpoints itself: handles, ignores, blocks and sends them. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>
#include "check.h"

#ifdef __x86_64__
#define FAULT_SIZE 2
#define FAULT() __asm__ __volatile__("ud2")
#else
#define FAULT_SIZE 4
#define FAULT() __asm__ __volatile__(".4byte 0")
#endif

static volatile int traps, told, others, faults;
static int own;
static sigjmp_buf out;
long volatile sum;

NOINLINE long work(long n) { return sum += n * 3 + 1; }
static void on_trap(int signal) { traps++; }
static void on_info(int signal, siginfo_t *info, void *context)
{
	told += info->si_signo == own && info->si_code <= 0 && info->si_pid == getpid();
}
static void on_fault(int signal, siginfo_t *info, void *place)
{
	ucontext_t *context = place;

#ifdef __loongarch__ /* of which qemu-user says no code */
	faults += info->si_code >= 0;
#else
	faults += info->si_code > 0;
#endif
#ifdef __x86_64__
	context->uc_mcontext.gregs[REG_RIP] += FAULT_SIZE;
#elif defined(__loongarch__)
	context->uc_mcontext.__pc += FAULT_SIZE;
#else
	context->uc_mcontext.pc += FAULT_SIZE;
#endif
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
	return sigismember(&now, own);
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

	own = is(argc, argv, "trap") ? SIGTRAP : SIGILL;
	act(own, on_trap, 0);
	work(1);
	raise(own);
	work(2);
	CHECK(traps == 1);
	CHECK(!sigaction(own, 0, &old) && old.sa_handler == on_trap);

	action.sa_sigaction = on_info;
	action.sa_flags = SA_SIGINFO;
	CHECK(!sigaction(own, &action, &old) && old.sa_handler == on_trap);
	kill(getpid(), own);
	CHECK(told == 1 && traps == 1);

	CHECK(signal(own, SIG_IGN) == (void *)on_info);
	raise(own);
	work(3);
	CHECK(signal(own, on_trap) == SIG_IGN);

	/* Blocked, it waits; breakpoints do not. */
	sigfillset(&all);
	CHECK(!sigprocmask(SIG_SETMASK, &all, &before));
	CHECK(!sigismember(&before, own) && is_blocked());
	work(4);
	raise(own);
	CHECK(traps == 1);
	CHECK(!pthread_sigmask(SIG_SETMASK, &before, 0));
	CHECK(traps == 2 && !is_blocked());

	/* In a handler that blocks all. */
	action = (struct sigaction){.sa_handler = on_other};
	sigfillset(&action.sa_mask);
	CHECK(!sigaction(SIGUSR1, &action, 0));
	raise(SIGUSR1);
	CHECK(others == 1 && !sigaction(SIGUSR1, 0, &old) && sigismember(&old.sa_mask, own));

	/* Once, and then as it was. */
	act(own, on_trap, SA_RESETHAND);
	raise(own);
	CHECK(traps == 3 && !sigaction(own, 0, &old) && old.sa_handler == SIG_DFL);

	act(own, leaving, 0);
	if (!sigsetjmp(out, 1)) {
		work(5);
		raise(own);
	}
	work(6);
	act(own, on_trap, 0);
	/* Instructions of its own that raise it. */
	action = (struct sigaction){.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
	CHECK(!sigaction(SIGILL, &action, 0));
	work(8);
	FAULT();
	work(9);
	FAULT();
	CHECK(faults == 2);
	CHECK(!pthread_create(&other, 0, thread, 0) && !pthread_join(other, &value) && !value);
	printf("%ld\n", sum);
	fflush(stdout);
	if (is(argc, argv, "die")) {
		signal(SIGILL, SIG_DFL);
		FAULT();
	}
	return 0;
}
