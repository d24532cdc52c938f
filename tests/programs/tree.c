// SPDX-License-Identifier: MIT
/* A few thousand calls of all kinds, the same in every run: for a debugger to count. */
#include <signal.h>
#include "check.h"

static volatile long sunk;

static NOINLINE long leaf(long n) { return n * 3 + 1; }
static NOINLINE long even(long n);
static NOINLINE long odd(long n) { return n ? even(n - 1) : leaf(0); }
static NOINLINE long even(long n) { return n ? odd(n - 1) : leaf(1); }
static NOINLINE long fib(long n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
static NOINLINE long deep(volatile long n) { return n ? deep(n - 1) + leaf(n) : even(7); }
static NOINLINE long through(long (*function)(long), long n) { return function(n); }
static NOINLINE int compare(const void *a, const void *b)
{
	sunk += leaf(*(const int *)a);
	return *(const int *)a - *(const int *)b;
}
static NOINLINE void handler(int signal) { sunk += deep(signal % 7); }
static NOINLINE double mean(const double *values, long n)
{
	return n ? (values[0] + mean(values + 1, n - 1)) / (double)leaf(n) : 0;
}
static NOINLINE void last(void) { sunk += fib(4); }

int main(void)
{
	int numbers[40];
	double values[20];

	atexit(last);
	for (int i = 0; i < 40; i++)
		numbers[i] = (i * 7919) % 101;
	for (int i = 0; i < 20; i++)
		values[i] = i;
	signal(SIGUSR1, handler);
	sunk = fib(11) + deep(60) + even(41) + odd(40) + through(leaf, 3) + through(even, 12);
	raise(SIGUSR1);
	qsort(numbers, 40, sizeof(*numbers), compare);
	for (int i = 0; i < 30; i++)
		sunk += through(i % 2 ? fib : deep, i % 5);
	printf("%ld %g\n", sunk, mean(values, 20));
	return 0;
}
