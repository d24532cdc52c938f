// SPDX-License-Identifier: MIT
/* Counts its own calls, in several threads, while signals arrive; the same result each time.
 *
 * `called THREADS` says `ready`, and answers each line: `cN`: each thread works N times; `dN`: waits
 * in a call N levels deep; `sN`: the same while a timer sends signals, whose handler calls as well.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static atomic_long ones, twos, sum, handled;

__attribute__((noinline)) int one(int n)
{
	__asm__ volatile("");
	ones++;
	return n + 1;
}

__attribute__((noinline)) int two(int n)
{
	twos++;
	return one(n) * 2 + one(n + 1);
}

/* Numbers in vector registers across calls. */
__attribute__((noinline)) double mixed(double a, double b, int n)
{
	for (int i = 0; i < 20; i++) {
		a = a * 0.5 + b * 0.3;
		b = b * 0.25 + one(n + i) * 0.5;
	}
	return a + b;
}

static void handle(int number)
{
	int kept = errno;

	(void)number;
	handled += one(0);
	errno = kept;
}

__attribute__((noinline)) int deep(int n)
{
	char line[64];

	if (n)
		return 1 + deep(n - 1);
	puts("waiting");
	fflush(stdout);
	return fgets(line, sizeof(line), stdin) ? 0 : 100;
}

static void *works(void *rounds)
{
	long mine = 0;

	for (long i = 0; i < (long)rounds; i++)
		mine += two((int)i) + (long)mixed((double)i, 1.0, (int)i);
	sum += mine;
	return 0;
}

static void all(int threads, long rounds)
{
	pthread_t one_of[64];

	for (int i = 0; i < threads; i++)
		if (pthread_create(one_of + i, 0, works, (void *)rounds))
			abort();
	for (int i = 0; i < threads; i++)
		pthread_join(one_of[i], 0);
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 1;
	struct sigaction act = {.sa_handler = handle, .sa_flags = SA_RESTART};
	struct itimerval often = {{0, 20000}, {0, 20000}}, never = {{0, 0}, {0, 0}};
	char line[64];

	sigaction(SIGALRM, &act, 0);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		int n = atoi(line + 1);

		if (*line == 'd') {
			printf("%d\n", deep(n));
		} else {
			sum = ones = twos = handled = 0;
			if (*line == 's')
				setitimer(ITIMER_REAL, &often, 0);
			all(threads, n);
			setitimer(ITIMER_REAL, &never, 0);
			printf("%ld %ld %ld %ld\n", sum, ones - handled, twos, ones);
		}
		fflush(stdout);
	}
	return 7;
}
