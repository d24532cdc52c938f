// SPDX-License-Identifier: MIT
/* Little of everything: descriptors, file size, memory, folders. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"

static NOINLINE long fib(long n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

static NOINLINE void limit(int what, rlim_t most)
{
	struct rlimit to = {most, most};

	CHECK(!setrlimit(what, &to));
}

/* Run this program again, as it is limited by now. */
static NOINLINE int again(char *self, char *mode)
{
	execl(self, self, mode, (char *)0);
	return 127;
}

static NOINLINE int small_file(void)
{
	char page[4096] = "";
	int fd = open("/tmp", O_TMPFILE | O_RDWR, 0600), pages = 0;

	signal(SIGXFSZ, SIG_IGN);
	while (write(fd, page, sizeof(page)) == (ssize_t)sizeof(page))
		pages++;
	CHECK(errno == EFBIG);
	return printf("%d pages\n", pages) < 0;
}

int main(int argc, char **argv)
{
	char *mode = argc > 1 ? argv[1] : "", *self = argv[0], *end = strchr(mode, '=');
	rlim_t most = end ? strtoul(end + 1, 0, 0) : 0;

	if (is(argc, argv, "closed")) {
		dup2(1, 9);
		for (int fd = 0; fd < 3; fd++)
			close(fd);
		return again(self, "lowest");
	}
	if (is(argc, argv, "lowest")) { /* the program that is run has the lowest descriptors */
		int first = open("/dev/null", O_RDWR), second = dup(first);

		return dprintf(9, "%d %d %ld\n", first, second, fib(9)) < 0;
	}
	if (!strncmp(mode, "size=", 5)) {
		limit(RLIMIT_FSIZE, most);
		return again(self, "small-file");
	}
	if (is(argc, argv, "small-file"))
		return small_file();
	if (!strncmp(mode, "space=", 6)) {
		limit(RLIMIT_AS, most);
		return again(self, "memory");
	}
	if (!strncmp(mode, "files=", 6)) {
		limit(RLIMIT_NOFILE, most);
		return fib(3) == 2 ? again(self, "memory") : 1;
	}
	if (is(argc, argv, "nowhere"))
		return chdir("/proc/self") ? 1 : again(self, "memory");
	if (is(argc, argv, "memory"))
		return printf("%d %ld\n", malloc(10 << 20) != 0, fib(10)) < 0;
	if (is(argc, argv, "chroot"))
		return chroot("/proc/self/fdinfo") || fork() ? !wait(0) : (int)fib(9) != 34;
	if (is(argc, argv, "locked")) {
		CHECK(getuid() || !setuid(65534)); /* to whom limits apply */
		limit(RLIMIT_MEMLOCK, 8 << 20);
		return printf("%d\n", mlockall(MCL_CURRENT)) < 0;
	}
	return (int)fib(8);
}
