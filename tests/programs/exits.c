// SPDX-License-Identifier: MIT
/* Every way to end, from the middle of calls. */
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "check.h"

static NOINLINE long leaf(long n) { return n + 1; }
static NOINLINE void at_exit(void) { printf("at exit %ld\n", leaf(1)); }

static NOINLINE void *late(void *main_thread)
{
	pthread_join(*(pthread_t *)main_thread, 0);
	printf("main ended\n");
	exit((int)leaf(4));
}

static NOINLINE long end(long n, const char *mode)
{
	static pthread_t self;
	pthread_t other;

	if (n)
		return end(n - 1, mode) + leaf(n);
	if (!strcmp(mode, "exit"))
		exit((int)leaf(10));
	if (!strcmp(mode, "_exit"))
		_exit((int)leaf(11));
	if (!strcmp(mode, "exit_group"))
		syscall(SYS_exit_group, leaf(12));
	if (!strcmp(mode, "abort"))
		abort();
	if (!strcmp(mode, "kill"))
		kill(getpid(), SIGKILL);
	if (!strcmp(mode, "term"))
		raise(SIGTERM);
	if (!strcmp(mode, "trap"))
		__builtin_trap();
	if (!strcmp(mode, "thread")) { /* the first thread ends, another goes on */
		self = pthread_self();
		CHECK(!pthread_create(&other, 0, late, &self));
		pthread_exit(0);
	}
	return 1;
}

int main(int argc, char **argv)
{
	atexit(at_exit);
	for (long i = 0; i < 100; i++)
		CHECK(leaf(i) == i + 1);
	printf("going\n");
	fflush(stdout);
	return (int)(end(20, argc > 1 ? argv[1] : "") & 0x7f);
}
