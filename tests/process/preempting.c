// SPDX-License-Identifier: MIT
/* preempting CPU BUSY PAUSE: takes a processor from everybody else for BUSY nanoseconds, again and
 * again, with PAUSE nanoseconds in between: what runs there is interrupted at every place. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

int main(int argc, char **argv)
{
	struct sched_param highest = {.sched_priority = 50};
	struct timespec between = {0, atol(argv[3])};
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(atoi(argv[1]), &one);
	if (sched_setaffinity(0, sizeof(one), &one) || sched_setscheduler(0, SCHED_FIFO, &highest))
		return 1;
	puts("ready");
	fflush(stdout);
	for (;;) {
		long end = now() + atol(argv[2]);

		while (now() < end)
			;
		nanosleep(&between, 0);
	}
}
