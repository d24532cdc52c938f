// SPDX-License-Identifier: MIT
/* Processes that libc knows nothing of: system calls that fork, and share memory. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"

#ifdef __s390x__
#define CLONE_FIRST 0, /* the stack */
#else
#define CLONE_FIRST
#endif

static volatile int go, children, failed, forks;

static NOINLINE long fib(long n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

static NOINLINE int status_of(pid_t child)
{
	int status;

	CHECK(child > 0 && waitpid(child, &status, __WALL) == child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* fork without libc: the thread's id that libc keeps is the parent's, in the child too. */
static NOINLINE pid_t raw(int n)
{
	pid_t child = n ? raw(n - 1) : (pid_t)syscall(SYS_clone, CLONE_FIRST SIGCHLD, 0, 0, 0);

	return fib(3) == 2 ? child : -1;
}

/* The same memory and thread pointer, at the same time. */
static NOINLINE int shares(void *n)
{
	__atomic_fetch_add(&go, 1, __ATOMIC_SEQ_CST);
	while (go < 2)
		;
	for (int i = 0; i < 20000; i++)
		if (fib((long)n) != 55)
			return 1;
	return 0;
}

static NOINLINE int sharing(void)
{
	size_t size = 256 << 10;
	char *stack = malloc(size);
	pid_t child = clone(shares, stack + size, CLONE_VM | SIGCHLD, (void *)10);

	CHECK(child > 0 && !shares((void *)10));
	return status_of(child);
}

/* Forks whenever the alarm rings; the child goes on with what was interrupted, a little. */
static void alarmed(int signal)
{
	(void)signal;
	if (forks == 200)
		return;
	forks++;
	pid_t child = fork();
	if (!child) {
		if (fib(10) != 55)
			_exit(2);
		children = 1;
	} else if (status_of(child) != 21) {
		failed = 1;
	}
}

static NOINLINE void alarms(void)
{
	struct itimerval timer = {{0, 300}, {0, 300}};

	signal(SIGALRM, alarmed);
	setitimer(ITIMER_REAL, &timer, 0);
	while (forks < 200 && !failed) {
		CHECK(fib(10) == 55);
		if (children)
			break;
	}
	if (children) /* the last one may begin after the loop's end, or before its first turn */
		_exit((int)fib(8));
	timer.it_value.tv_usec = 0;
	setitimer(ITIMER_REAL, &timer, 0);
	CHECK(!failed);
}

int main(int argc, char **argv)
{
	struct rlimit seconds = {30, 30};
	pid_t child;

	if (is(argc, argv, "raw"))
		for (int n = 0; n < 8; n++) {
			child = raw(n);
			if (!child)
				_exit(20 + (int)fib(3));
			CHECK(status_of(child) == 22);
		}
	if (is(argc, argv, "shared")) {
		setrlimit(RLIMIT_CPU, &seconds); /* what goes astray does not end by itself */
		CHECK(sharing() == 0);
	}
	if (is(argc, argv, "alarm"))
		alarms();
	printf("%ld\n", fib(12));
	return 0;
}
