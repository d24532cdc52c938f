// SPDX-License-Identifier: MIT
/* A variable that threads read and write when they are told to; who accesses it counts that. Each
 * order on standard input is answered by "done READS WRITES", all that there have been. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 20
#define MORE 5
#define CHAINS 4

volatile long cell;
volatile int a, b, c;
static volatile struct { long other, cell[2]; } parts;
static atomic_long reads, writes, chained;
static atomic_int going, ending;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ordered = PTHREAD_COND_INITIALIZER, finished = PTHREAD_COND_INITIALIZER;
static long order, arrived;

__attribute__((noinline)) void put(long value)
{
	cell = value;
	parts.other = -1;
	parts.cell[0] = value + 1;
	parts.cell[1] = value;
	atomic_fetch_add(&writes, 1);
}

__attribute__((noinline)) long get(void)
{
	long value = cell;

	atomic_fetch_add(&reads, 1);
	return value;
}

static void *work(void *argument)
{
	for (int i = 0; i < ROUNDS; i++) {
		put(i);
		get();
	}
	return argument;
}

/* A thread that is there before anybody watches. */
static void *waits(void *argument)
{
	for (long seen = 0;; seen++) {
		pthread_mutex_lock(&lock);
		while (order == seen)
			pthread_cond_wait(&ordered, &lock);
		pthread_mutex_unlock(&lock);
		work(0);
		pthread_mutex_lock(&lock);
		arrived++;
		pthread_cond_signal(&finished);
		pthread_mutex_unlock(&lock);
	}
	return argument;
}

static void begin(void *(*what)(void *), pthread_t *thread)
{
	pthread_attr_t small;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	if (pthread_create(thread, &small, what, 0))
		abort();
}

/* Each begins the next one, and writes once if it is time to. */
static void *chain(void *argument)
{
	pthread_t next;

	usleep(300);
	if (!atomic_load(&ending)) {
		atomic_fetch_add(&chained, 1);
		begin(chain, &next);
		pthread_detach(next);
	}
	usleep(2000);
	if (atomic_load(&going))
		put(1);
	atomic_fetch_sub(&chained, 1);
	return argument;
}

int main(int argc, char **argv)
{
	int threads = atoi(argv[1]), i;
	pthread_t thread[MORE], other;
	char line[64];

	for (i = 0; i < threads; i++)
		begin(waits, &other);
	printf("ready %d\n", getpid());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "all\n")) {
			pthread_mutex_lock(&lock);
			order++;
			pthread_cond_broadcast(&ordered);
			while (arrived < threads * order)
				pthread_cond_wait(&finished, &lock);
			pthread_mutex_unlock(&lock);
		} else if (!strcmp(line, "more\n")) {
			for (i = 0; i < MORE; i++)
				begin(work, &thread[i]);
			for (i = 0; i < MORE; i++)
				pthread_join(thread[i], 0);
		} else if (!strcmp(line, "own\n")) {
			work(0);
		} else if (!strcmp(line, "fork\n")) {
			if (!fork()) {
				work(0);
				_exit(0);
			}
			wait(0);
		} else if (!strcmp(line, "chain\n")) {
			for (i = 0; i < CHAINS; i++) {
				atomic_fetch_add(&chained, 1);
				begin(chain, &other);
				pthread_detach(other);
			}
		} else if (!strcmp(line, "go\n")) {
			atomic_store(&going, 1);
			while (atomic_load(&writes) < 200)
				usleep(1000);
			atomic_store(&ending, 1);
			while (atomic_load(&chained))
				usleep(1000);
		} else if (!strcmp(line, "exec\n")) {
			execl("/bin/cat", "cat", NULL);
		}
		printf("done %ld %ld\n", atomic_load(&reads), atomic_load(&writes));
		fflush(stdout);
	}
	return 0;
}
