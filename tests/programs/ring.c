// SPDX-License-Identifier: MIT
/* Threads that call functions at random, and remember which:
 *
 *     ring THREADS CALLS LOG [signals|MICROSECONDS]
 *
 * LOG gets, for each thread, its id, the number of its calls, and its latest ones, a digit for each.
 * With `signals`, handlers make calls meanwhile, which are not in the log. With a time to
 * pause for now and then, it begins when it is told to. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define PLAIN __attribute__((noinline, patchable_function_entry(0)))
#define KEPT 30000
#define MOST 4096
#define PACE 500 /* calls between pauses */

struct log {
	long tid, count, most;
	unsigned seed;
	char made[KEPT];
};

static struct log *logs;
static int pause_for;
static __thread struct log *mine;

#define F(n) __attribute__((noinline)) void f##n(int depth);
EACH(F)
#undef F
#define F(n) f##n,
static void (*const all[])(int) = {EACH(F)};
#undef F

__attribute__((noinline)) void handled(void)
{
	__asm__ volatile("" ::: "memory");
}

PLAIN static void one(int depth)
{
	struct log *log = mine;
	unsigned which;

	if (log->count == log->most)
		return;
	log->seed = log->seed * 1103515245 + 12345;
	which = log->seed >> 16 & 7;
	log->made[log->count++ % KEPT] = '0' + which;
	all[which](depth);
}

#define F(n) void f##n(int depth) { if (depth) one(depth - 1); __asm__ volatile("" ::: "memory"); }
EACH(F)

PLAIN static void *run(void *arg)
{
	mine = arg;
	mine->tid = gettid();
	while (mine->count < mine->most) {
		long before = mine->count;

		one(3);
		if (pause_for && mine->count / PACE != before / PACE)
			usleep(pause_for);
	}
	return 0;
}

PLAIN static void on_signal(int number)
{
	(void)number;
	for (int i = 0; i < 3; i++)
		handled();
}

PLAIN int main(int argc, char **argv)
{
	int threads = atoi(argv[1]);
	struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
	pthread_t id[MOST];
	FILE *file;

	logs = calloc(threads, sizeof(*logs));
	pause_for = argc > 4 ? atoi(argv[4]) : 0;
	if (pause_for) {
		printf("ready\n");
		fflush(stdout);
		getchar();
	} else if (argc > 4) {
		signal(SIGALRM, on_signal);
		setitimer(ITIMER_REAL, &often, 0);
	}
	for (int i = 0; i < threads; i++) {
		logs[i].seed = i * 7919 + 1;
		logs[i].most = atol(argv[2]);
		pthread_create(&id[i], 0, run, &logs[i]);
	}
	for (int i = 0; i < threads; i++)
		pthread_join(id[i], 0);
	setitimer(ITIMER_REAL, &never, 0);
	file = fopen(argv[3], "w");
	for (int i = 0; i < threads; i++) {
		struct log *log = &logs[i];

		fprintf(file, "%ld %ld ", log->tid, log->count);
		for (long k = log->count > KEPT ? log->count - KEPT : 0; k < log->count; k++)
			fputc(log->made[k % KEPT], file);
		fputc('\n', file);
	}
	return fclose(file);
}
