// SPDX-License-Identifier: MIT
/* Threads that come and go: joined, detached, ended and cancelled in the middle of calls. */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <unistd.h>
#include "check.h"

static atomic_long done, cleaned;
static sem_t finished;
static pthread_key_t key;

static NOINLINE long work(long n) { return n < 2 ? n : work(n - 1) + work(n - 2); }
static NOINLINE void cleanup(void *by) { cleaned += (long)by + work(3) - 2; }
static NOINLINE void destroy(void *value) { done += (long)value; }

static NOINLINE void *plain(void *n)
{
	pthread_setspecific(key, (void *)1);
	return (void *)work((long)n);
}

static NOINLINE void *detached(void *n)
{
	CHECK(work((long)n) >= 0);
	sem_post(&finished);
	return 0;
}

/* Ends below `n` open frames, each of which has something to clean up. */
static NOINLINE long ends(long n)
{
	long value;

	pthread_cleanup_push(cleanup, (void *)1);
	if (!n)
		pthread_exit((void *)77);
	value = ends(n - 1) + work(2);
	pthread_cleanup_pop(1);
	return value;
}
static NOINLINE void *ending(void *n) { return (void *)ends((long)n); }

static NOINLINE long waits(long n)
{
	long value = 0;

	pthread_cleanup_push(cleanup, (void *)1);
	if (!n)
		for (sem_post(&finished);; value += work(4))
			pause();
	else
		value = waits(n - 1) + work(2);
	pthread_cleanup_pop(1);
	return value;
}
static NOINLINE void *waiting(void *n) { return (void *)waits((long)n); }

/* May be cancelled at any instruction: that of the tracer, too. */
static NOINLINE long spins(long n)
{
	long value = 0;

	if (n)
		return spins(n - 1) + 1;
	sem_post(&finished);
	for (;;)
		value += work(5);
	return value;
}
static NOINLINE void *spinning(void *n)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0);
	return (void *)spins((long)n);
}

static NOINLINE void batch(void *(*start)(void *), int count, long n, int cancel, void *expected)
{
	pthread_t thread[16];
	void *value;

	for (int i = 0; i < count; i++)
		CHECK(!pthread_create(&thread[i], 0, start, (void *)n));
	for (int i = 0; cancel && i < count; i++)
		sem_wait(&finished);
	for (int i = 0; cancel && i < count; i++)
		CHECK(!pthread_cancel(thread[i]));
	for (int i = 0; i < count; i++) {
		CHECK(!pthread_join(thread[i], &value));
		CHECK(value == expected);
	}
}

int main(void)
{
	pthread_attr_t attr;
	pthread_t thread;

	sem_init(&finished, 0, 0);
	pthread_key_create(&key, destroy);
	for (int round = 0; round < 12; round++) {
		batch(plain, 1 + round, 10, 0, (void *)55);
		batch(ending, 8, 3 + round, 0, (void *)77);
		batch(waiting, 6, 4 + round, 1, PTHREAD_CANCELED);
		batch(spinning, 4, round, 1, PTHREAD_CANCELED);
	}
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	for (int i = 0; i < 100; i++) {
		CHECK(!pthread_create(&thread, &attr, detached, (void *)(long)(i % 9)));
		if (i % 5 == 4)
			for (int j = 0; j < 5; j++)
				sem_wait(&finished);
	}
	printf("%ld destroyed, %ld cleaned up\n", (long)done, (long)cleaned);
	return 0;
}
