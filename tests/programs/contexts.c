// SPDX-License-Identifier: MIT
/* Coroutines, on every kind of stack. */
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>
#include "check.h"

enum { MANY = 24, STACK = 64 << 10 };
struct coroutine {
	ucontext_t own, back;
	long value, steps;
	int ended;
};
static struct coroutine pool[MANY + 8];
static struct coroutine *volatile current;

static NOINLINE long fib(long n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

static NOINLINE void pass(struct coroutine *c) { swapcontext(&c->own, &c->back); }

/* Yields at the bottom of every recursion, with all of it open. */
static NOINLINE long walk(struct coroutine *c, long n)
{
	long value = fib(n % 5);

	if (n)
		value += walk(c, n - 1);
	c->value += value;
	pass(c);
	return value + fib(3);
}

static NOINLINE void body(void)
{
	struct coroutine *c = current;

	c->value += walk(c, c->steps);
	c->ended = 1;
	pass(c);
}

static NOINLINE void make(struct coroutine *c, char *stack, long steps)
{
	memset(c, 0, sizeof(*c));
	getcontext(&c->own);
	c->own.uc_stack.ss_sp = stack;
	c->own.uc_stack.ss_size = STACK;
	c->steps = steps;
	makecontext(&c->own, body, 0);
}

static NOINLINE void resume(struct coroutine *c)
{
	current = c;
	swapcontext(&c->back, &c->own);
}

static NOINLINE long finish(struct coroutine *c)
{
	while (!c->ended)
		resume(c);
	return c->value + fib(2);
}

/* Interleaved in an order that is no round: whoever goes on has others above and below it. */
static NOINLINE long interleaved(char *stacks, int count)
{
	unsigned long long seed = 12345;
	long total = 0;
	int left = count;

	for (int i = 0; i < count; i++)
		make(&pool[i], stacks + (long)i * STACK, 3 + i % 7);
	while (left) {
		struct coroutine *c = &pool[(seed = seed * 6364136223846793005ull + 1) >> 33 & 31];

		if (c >= pool + count || c->ended)
			continue;
		resume(c);
		total = (total * 7 + c->value) % 1000003;
		left -= c->ended;
	}
	return total;
}

static NOINLINE void *elsewhere(void *c) { return (void *)finish(c); }

/* Begun here, ended by another thread. */
static NOINLINE long moved(char *stack)
{
	pthread_t thread;
	void *value;

	make(&pool[0], stack, 9);
	for (int i = 0; i < 4; i++)
		resume(&pool[0]);
	CHECK(!pthread_create(&thread, 0, elsewhere, &pool[0]) && !pthread_join(thread, &value));
	return (long)value;
}

int main(void)
{
	static char fixed[STACK * 4];
	char inner[STACK * 4];
	char *heap = malloc((size_t)STACK * MANY), *map;

	printf("%ld %ld %ld\n", interleaved(heap, MANY), interleaved(fixed, 4), interleaved(inner, 4));
	for (int i = 0; i < 3; i++)
		printf("%ld %ld %ld\n", moved(heap), moved(fixed), moved(inner));
	for (int i = 0; i < 300; i++) { /* abandoned, and the memory is given back */
		map = mmap(0, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		make(&pool[0], i % 2 ? map : heap, i % 10 + 3);
		for (int j = 0; j <= i % 13; j++)
			resume(&pool[0]);
		munmap(map, STACK);
	}
	free(heap);
	printf("%ld\n", fib(10));
	return 0;
}
