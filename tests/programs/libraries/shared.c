// SPDX-License-Identifier: MIT
/* A library that is traced with the program: callbacks, tail calls, constructors, jumps, threads. */
#include "shared.h"

static int started;
static __thread int counter;

int leaf(int n)
{
	return n + 1;
}

__attribute__((constructor)) static void begin(void)
{
	started = leaf(1);
}

__attribute__((destructor)) static void end(void)
{
	started = leaf(started);
}

int through(int n, int (*back)(int))
{
	int sum = back(n);

	return sum + leaf(n);
}

int tail(int n, int (*back)(int))
{
	return back(n * 2);
}

int deep(int n, int (*back)(int))
{
	int sum = n ? deep(n - 1, back) : back(0);

	__asm__ volatile("" : "+r"(sum)); /* no loop of it */
	return sum + 1;
}

void leap(jmp_buf to, int n)
{
	leaf(n);
	longjmp(to, n);
}

int count(int n)
{
	counter += n;
	if (n > 0)
		n = count(n - 1);
	else
		n = counter;
	__asm__ volatile("" : "+r"(n));
	return n + 1;
}

int was_started(void)
{
	return started;
}
