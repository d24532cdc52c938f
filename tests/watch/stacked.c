// SPDX-License-Identifier: MIT
/* A variable that is written from many depths: by callbacks of a library, a signal's handler, another
 * thread, frames of a size that only runs tell. It begins when it has read a line, or its end. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define APART __attribute__((noinline, noclone))

volatile int held;
volatile long other;

APART int leaf(int n)
{
	held += 1;
	return n * 3;
}

APART int deep(int n)
{
	int below = n > 0 ? deep(n - 1) : leaf(n);

	return below * 5 ^ n;
}

APART static int compared(const void *left, const void *right)
{
	int a = *(const int *)left, b = *(const int *)right;

	return leaf(a - b) > 0 ? 1 : a - b;
}

APART static void handled(int number)
{
	held -= 1 + (leaf(number) & 0);
}

APART int sized(int n)
{
	char *room = __builtin_alloca(n * 16 + 16);

	memset(room, n, n * 16 + 16);
	return leaf(room[n]) + room[0];
}

/* Its frame is aligned further than the ABI asks for: its CFA is what an expression says. */
APART int aligned(int n)
{
	_Alignas(64) volatile char room[64] = {(char)n};
	volatile char *more = __builtin_alloca(n + 1);

	more[n] = 1;
	return leaf(room[0]) + (int)((unsigned long)room & 63) + more[n];
}

APART static void *threaded(void *given)
{
	other += 1;
	return (void *)(long)deep(*(int *)given);
}

int main(int count, char **words)
{
	int numbers[] = {5, 3, 9, 1}, depth = count > 1 ? atoi(words[1]) : 3;
	struct sigaction action = {.sa_handler = handled};
	pthread_t thread;

	puts("ready");
	fflush(stdout);
	getchar();
	printf("%d\n", deep(depth));
	qsort(numbers, 4, sizeof(*numbers), compared);
	sigaction(SIGUSR1, &action, 0);
	raise(SIGUSR1);
	printf("%d %d\n", sized(3), aligned(depth));
	pthread_create(&thread, 0, threaded, &depth);
	pthread_join(thread, 0);
	return 0;
}
