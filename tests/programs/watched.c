// SPDX-License-Identifier: MIT
/* Variables of every size, which functions read and write a known number of times. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 12
#define THREADS 3

static volatile int counter;
volatile unsigned char flag;
volatile unsigned short port = 80;
volatile long total;
volatile unsigned char table[64] __attribute__((aligned(16)));
__thread volatile int own;
void (*volatile way)(int);

__attribute__((noinline)) static void step(int by)
{
	counter += by;
}

__attribute__((noinline)) static int look(void)
{
	return counter;
}

__attribute__((noinline)) static void sizes(int i)
{
	flag = i & 1;
	port += flag;
	total += port;
	if (total > 1000)
		total = 0;
}

__attribute__((noinline)) static void atomics(int i)
{
	int expected = -1;

	__atomic_fetch_add(&counter, i, __ATOMIC_SEQ_CST);
	__atomic_exchange_n(&counter, i, __ATOMIC_SEQ_CST);
	__atomic_compare_exchange_n(&counter, &expected, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

__attribute__((noinline)) static void fill(void)
{
	memset((void *)(table + 16), 3, 16);
	table[17] = 4;
	table[20] = table[16];
}

static void *work(void *argument)
{
	int i;

	for (i = 0; i < ROUNDS; i++)
		__atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED);
	own = i;
	return argument;
}

static void threads(void)
{
	pthread_t thread[THREADS];
	int i;

	for (i = 0; i < THREADS; i++)
		if (pthread_create(&thread[i], 0, work, 0))
			abort();
	for (i = 0; i < THREADS; i++)
		pthread_join(thread[i], 0);
}

/* In a form that no jump has room for. */
static void set_mask(unsigned long mask)
{
	register long r10 __asm__("r10") = 8;
	long ret;

	__asm__ __volatile__("movl $14, %%ecx; movl %%ecx, %%eax; syscall"
			     : "=a"(ret) : "D"(SIG_SETMASK), "S"(&mask), "d"(0), "r"(r10)
			     : "rcx", "r11", "memory");
}

static void blocked(void)
{
	set_mask(~0ul);
	step(1);
	set_mask(0);
	step(1);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	int i, sum = 0;

	if (!strcmp(what, "sizes"))
		for (i = 0; i < ROUNDS; i++)
			sizes(i);
	if (!strcmp(what, "threads"))
		threads();
	if (!strcmp(what, "atomics"))
		for (i = 0; i < ROUNDS; i++)
			atomics(i);
	if (!strcmp(what, "fill"))
		fill();
	if (!strcmp(what, "blocked"))
		blocked();
	if (!strcmp(what, "way"))
		for (way = step, i = 0; i < ROUNDS; i++)
			way(i);
	if (!strcmp(what, "fork")) {
		fflush(stdout);
		if (!fork()) {
			step(100);
			printf("child %d\n", look());
			fflush(stdout);
			_exit(0);
		}
		wait(&i);
	}
	for (i = 0; i < ROUNDS; i++) {
		step(i);
		sum += look();
	}
	printf("%d %d %d %d %ld %d %d\n", counter, sum, flag, port, total, table[17], own);
	return 0;
}
