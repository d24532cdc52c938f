// SPDX-License-Identifier: MIT
/* A program that uses SIGILL itself, from many threads, in every way, and counts what it sees:
 *
 *     own_sigill THREADS
 *
 * `r ROUNDS` on standard input lets all threads make so many rounds, and is answered with the number
 * of calls of work() in this process, of errors, and of SIGILLs handled; `b` lets them make rounds
 * until the next line. Forked children check their own. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define CALLED __attribute__((noinline, noipa))
#define MOST 64

static long calls, errors, handled;
static __thread volatile long own_calls, own_handled, own_raised; /* handlers count, too */
static volatile int going;
static long rounds;
static pthread_barrier_t all;
static const char *volatile wrong = "";
extern char **environ;

CALLED long work(long n)
{
	own_calls++;
	return n * 3 + 1;
}

static void check(int is_right, const char *what)
{
	if (is_right)
		return;
	if (!*wrong)
		wrong = what;
	__atomic_add_fetch(&errors, 1, __ATOMIC_RELAXED);
}

/* ud2 is 0f 0b. */
static void on_ill(int number, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;

	(void)number;
	if (info->si_code > 0) {
		const unsigned char *at = (const unsigned char *)uc->uc_mcontext.gregs[REG_RIP];

		check(at[0] == 0x0f && at[1] == 0x0b, "a trap that is not ours");
		uc->uc_mcontext.gregs[REG_RIP] += 2;
	}
	check(work(7) == 22, "work in a handler");
	own_handled++;
}

static void on_user(int number)
{
	(void)number;
	check(work(2) == 7, "work in another handler");
}

static void blocked(int how)
{
	sigset_t set, old, now;

	if (how)
		sigfillset(&set);
	else
		sigemptyset(&set), sigaddset(&set, SIGILL);
	pthread_sigmask(SIG_BLOCK, &set, &old);
	check(!sigismember(&old, SIGILL), "blocked before");
	check(work(3) == 10, "work while it is blocked");
	own_raised++;
	syscall(SYS_tgkill, getpid(), gettid(), SIGILL);
	check(own_handled == own_raised - 1, "handled while it is blocked");
	pthread_sigmask(SIG_BLOCK, 0, &now);
	check(sigismember(&now, SIGILL), "not blocked");
	pthread_sigmask(SIG_SETMASK, &old, 0);
	check(own_handled == own_raised, "not handled when it was unblocked");
}

static void waits(int how)
{
	static __thread int fd = -1;
	struct timespec soon = {0, 300000};
	struct epoll_event event;
	sigset_t set;

	sigfillset(&set);
	if (how == 0)
		ppoll(0, 0, &soon, &set);
	else if (how == 1)
		pselect(0, 0, 0, 0, &soon, &set);
	else {
		if (fd < 0)
			fd = epoll_create1(EPOLL_CLOEXEC);
		sigdelset(&set, SIGUSR1);
		epoll_pwait(fd, &event, 1, 1, &set);
	}
}

static void child(void)
{
	long before_errors = errors;
	int status;
	pid_t pid = fork();

	if (!pid) {
		long before = own_handled;

		__asm__ volatile("ud2");
		check(work(1) == 4 && own_handled == before + 1, "in a child");
		if (errors == before_errors)
			_exit(3);
		fprintf(stderr, "child: %s\n", wrong);
		_exit(9);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 3)
		fprintf(stderr, "child's status %x\n", status);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 3, "a child's end");
}

static void spawned(void)
{
	char *argv[] = {"true", 0};
	posix_spawnattr_t how;
	sigset_t set;
	pid_t pid;
	int status = 0;

	sigfillset(&set);
	posix_spawnattr_init(&how);
	posix_spawnattr_setsigdefault(&how, &set);
	posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGDEF);
	check(!posix_spawn(&pid, "/bin/true", 0, &how, argv, environ), "posix_spawn");
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	check(WIFEXITED(status) && !WEXITSTATUS(status), "a spawned program's end");
}

static void *idle(void *unused)
{
	return unused;
}

static void one_round(long i)
{
	struct sigaction now;
	pthread_t other;

	check(work(i) == 3 * i + 1, "work");
	if (i % 4 == 1)
		blocked(i % 8 == 1);
	if (i % 4 == 2) {
		own_raised++;
		__asm__ volatile("ud2");
		check(own_handled == own_raised, "its own trap");
	}
	if (i % 8 == 3)
		waits((int)(i / 8 % 3));
	if (i % 16 == 5) {
		sigaction(SIGILL, 0, &now);
		check(now.sa_sigaction == on_ill && now.sa_flags & SA_SIGINFO, "its action");
	}
	if (i % 16 == 7)
		syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1);
	if (i % 32 == 9 && !pthread_create(&other, 0, idle, 0))
		pthread_join(other, 0);
	if (i % 128 == 33)
		child();
	if (i % 256 == 65)
		spawned();
}

static void *worker(void *number)
{
	long i;

	for (;;) {
		pthread_barrier_wait(&all);
		if (going < 0)
			return 0;
		own_calls = own_handled = own_raised = 0;
		for (i = 0; rounds ? i < rounds : going; i++)
			one_round(i + 37 * (long)number * !rounds);
		check(own_handled == own_raised, "signals");
		__atomic_add_fetch(&calls, own_calls, __ATOMIC_RELAXED);
		__atomic_add_fetch(&handled, own_handled, __ATOMIC_RELAXED);
		pthread_barrier_wait(&all);
	}
}

/* It blocks everything, for ever. */
static void *waiter(void *unused)
{
	sigset_t set;
	int number;

	sigfillset(&set);
	pthread_sigmask(SIG_BLOCK, &set, 0);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	for (;;) {
		sigwait(&set, &number);
		pthread_sigmask(SIG_BLOCK, 0, &set);
		check(sigismember(&set, SIGILL), "the waiter's mask");
		sigemptyset(&set);
		sigaddset(&set, SIGUSR2);
	}
	return unused;
}

int main(int argc, char **argv)
{
	long number = argc > 1 ? atol(argv[1]) : 4, i;
	struct sigaction ill = {.sa_sigaction = on_ill, .sa_flags = SA_SIGINFO};
	struct sigaction user = {.sa_handler = on_user, .sa_flags = SA_RESTART};
	pthread_t threads[MOST], other;
	char line[64];
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR2); /* for the waiter alone */
	sigprocmask(SIG_BLOCK, &set, 0);
	sigfillset(&user.sa_mask);
	sigaction(SIGILL, &ill, 0);
	sigaction(SIGUSR1, &user, 0);
	pthread_barrier_init(&all, 0, (unsigned)number + 1);
	pthread_create(&other, 0, waiter, 0);
	for (i = 0; i < number; i++)
		pthread_create(&threads[i], 0, worker, (void *)i);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		calls = handled = 0;
		going = 1;
		rounds = *line == 'r' ? atol(line + 1) : 0;
		pthread_barrier_wait(&all);
		if (!rounds && fgets(line, sizeof(line), stdin))
			going = 0;
		going = 0;
		pthread_barrier_wait(&all);
		kill(getpid(), SIGUSR2);
		printf("%ld calls, %ld errors%s%s, %ld handled\n", calls, errors, *wrong ? ": " : "", wrong,
		       handled);
		fflush(stdout);
	}
	going = -1;
	pthread_barrier_wait(&all);
	for (i = 0; i < number; i++)
		pthread_join(threads[i], 0);
	return errors ? 1 : 7;
}
