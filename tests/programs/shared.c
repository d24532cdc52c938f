// SPDX-License-Identifier: MIT
/* A variable that threads read and write when they are told to, each access counted by the thread
 * that makes it. After each order: "done READS WRITES VALUE". */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

volatile long cell;
volatile int a, b, c;
static atomic_long reads, writes, arrived;
static atomic_int order, ending;
static long rounds = 20;

__attribute__((noinline)) void put(long value)
{
	cell = value;
	atomic_fetch_add(&writes, 1);
}

__attribute__((noinline)) long get(void)
{
	long value = cell;

	atomic_fetch_add(&reads, 1);
	return value;
}

static void *once(void *argument)
{
	long i;

	for (i = 0; i < rounds; i++) {
		put(i);
		get();
	}
	return argument;
}

/* Begun before anybody watches. */
static void *waits(void *argument)
{
	int seen = 0;

	for (;;) {
		while (atomic_load(&order) == seen)
			usleep(500);
		seen++;
		if (seen < 0)
			return argument;
		once(0);
		atomic_fetch_add(&arrived, 1);
	}
}

/* Threads that begin all the time, each of which writes once when it is time to. */
static void *writes_once(void *argument)
{
	while (!atomic_load(&order))
		usleep(300);
	put(1);
	return argument;
}

static void *begins(void *argument)
{
	pthread_t thread[40];
	int i;

	while (!atomic_load(&ending)) {
		for (i = 0; i < 40; i++)
			if (pthread_create(&thread[i], 0, atomic_load(&order) ? writes_once : once_idle, 0))
				abort();
		for (i = 0; i < 40; i++)
			pthread_join(thread[i], 0);
	}
	return argument;
}

int main(int argc, char **argv)
{
	return 0;
}
