// SPDX-License-Identifier: MIT
/* Frames that are left without a return: longjmp, from everywhere. */
#include <setjmp.h>
#include "check.h"

static jmp_buf buffer[64];
static volatile long count;

static NOINLINE long leaf(long n) { return n * 3 + 1; }

/* Frames of many sizes, so that they lie at ever other places. */
static NOINLINE void jump_from(long depth, int to)
{
	volatile char room[16 + 48 * (depth % 5)];

	room[0] = (char)depth;
	if (depth)
		jump_from(depth - 1, to);
	longjmp(buffer[to], room[0] + 1);
}

static NOINLINE void many(void)
{
	for (volatile long i = 0; i < 100000; i++)
		if (!setjmp(buffer[0]))
			jump_from(i % 7 ? i % 23 : i % 61, 0);
		else
			count += leaf(i & 3);
}

/* setjmp at each of 40 levels; the deepest jumps to one of them, which returns from there. */
static NOINLINE long levels(int depth, int target)
{
	if (depth == 40)
		longjmp(buffer[target], 1);
	if (setjmp(buffer[depth]))
		return depth + leaf(1);
	return levels(depth + 1, target) + leaf(0);
}

/* Comes back to the same frame again and again, from other depths. */
static NOINLINE long again(void)
{
	volatile long round = 0;

	setjmp(buffer[1]);
	round++;
	if (round < 2000)
		jump_from(round % 50, 1);
	return round + leaf(2);
}

static NOINLINE long through(long n)
{
	long value = n ? through(n - 1) : again();

	return value + leaf(n) % 2;
}

static void *words[5];

static NOINLINE void builtin_jump(int n)
{
	if (n)
		builtin_jump(n - 1);
	else
		__builtin_longjmp(words, 1);
	count++;
}

static NOINLINE int builtin(int n)
{
	if (__builtin_setjmp(words))
		return 1;
	builtin_jump(n);
	return 0;
}

int main(void)
{
	long total = 0;

	many();
	for (int target = 0; target < 40; target++)
		total += levels(0, target);
	for (int n = 0; n < 50; n++)
		CHECK(builtin(n) == 1);
	printf("%ld %ld %ld\n", count, total, through(30));
	return 0;
}
