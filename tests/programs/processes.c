// SPDX-License-Identifier: MIT
/* Children of every kind, made and ended in the middle of calls. */
#define _GNU_SOURCE
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"

extern char **environ;
static char *self;

static NOINLINE long fib(long n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

static NOINLINE int status_of(pid_t child)
{
	int status;

	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* Forks below n frames; the child returns through all of them. */
static NOINLINE pid_t forked(int n)
{
	pid_t child = n ? forked(n - 1) : fork();

	return fib(3) == 2 ? child : -1;
}

/* Generations: every child forks, returns and waits for its own. */
static NOINLINE int family(int n)
{
	pid_t child;

	if (!n)
		return 5;
	child = forked(n);
	return child ? status_of(child) + 1 : family(n - 1);
}

static NOINLINE pid_t vforked(int n)
{
	volatile pid_t child;

	if (n) {
		child = vforked(n - 1);
		return fib(2) ? child : 0;
	}
	child = vfork();
	if (!child) {
		if (fib(4) == 3)
			execl(self, self, "exit", "9", (char *)0);
		_exit(1);
	}
	return child;
}

static NOINLINE pid_t spawned(char *code)
{
	char *argv[] = {self, "exit", code, 0};
	pid_t child;

	CHECK(!posix_spawn(&child, self, 0, 0, argv, environ));
	return child;
}

static NOINLINE int daemons(void)
{
	int ends[2], value = 0;
	pid_t child;

	CHECK(!pipe(ends));
	fflush(stdout);
	child = fork();
	if (!child) {
		CHECK(!daemon(1, 1));
		value = (int)fib(10);
		CHECK(write(ends[1], &value, sizeof(value)) == sizeof(value));
		exit(0);
	}
	CHECK(status_of(child) == 0 && read(ends[0], &value, sizeof(value)) == sizeof(value));
	return value;
}

int main(int argc, char **argv)
{
	char command[4096];
	int status;
	pid_t child;

	self = argv[0];
	if (is(argc, argv, "exit"))
		exit(atoi(argv[2]) + (int)fib(2) - 1);
	if (is(argc, argv, "again")) { /* exec of itself, three times */
		if (!strcmp(argv[2], "xxx"))
			return (int)fib(7);
		snprintf(command, sizeof(command), "x%s", argv[2]);
		execl(self, self, "again", command, (char *)0);
		return 1;
	}
	for (int n = 0; n < 12; n++) {
		child = forked(n);
		if (!child)
			_exit(n + (int)fib(5));
		CHECK(status_of(child) == n + 5);
	}
	child = getpid();
	status = family(6);
	if (getpid() != child)
		exit(status);
	printf("%d generations\n", status);
	for (int n = 0; n < 8; n++)
		CHECK(status_of(vforked(n)) == 9);
	CHECK(status_of(spawned("23")) == 23);
	snprintf(command, sizeof(command), "'%s' exit 3; '%s' again x", self, self);
	status = system(command);
	printf("%d %d\n", WEXITSTATUS(status), daemons());
	return 0;
}
