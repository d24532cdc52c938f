// SPDX-License-Identifier: MIT
/* Frames that are away while others come and go in their place, and tail calls from them. */
#include <pthread.h>
#include <signal.h>
#include <ucontext.h>
#include "check.h"

enum { STACK = 64 << 10 };
static ucontext_t own, back;
static volatile long sunk;
static char *stack;
static long depth;

static NOINLINE long leaf(long n) { return n * 3 + 1; }
static NOINLINE void pass(void) { swapcontext(&own, &back); }
static NOINLINE void resume(void) { swapcontext(&back, &own); }
static NOINLINE long other(long n) { return n ? other(n - 1) + leaf(n) : leaf(0); }

/* Yields, and goes on with a tail call: `then` has the frame of `first`. */
static NOINLINE long then(long n) { sunk += leaf(n); return n + 1; }
static NOINLINE long first(long n)
{
	pass();
	return then(n + 1);
}
static NOINLINE long recursive(long n)
{
	long value = n ? recursive(n - 1) : first(n);

	return value + leaf(1);
}
static NOINLINE void body(void)
{
	sunk += recursive(depth);
	for (;;)
		pass();
}

static NOINLINE void begin(char *on, long n)
{
	getcontext(&own);
	own.uc_stack.ss_sp = on;
	own.uc_stack.ss_size = STACK;
	makecontext(&own, body, 0);
	depth = n;
	resume(); /* up to first() */
}

static NOINLINE void *begins(void *n) { begin(stack, (long)n); return 0; }
static NOINLINE void *resumes(void *n) { other((long)n); resume(); return 0; }
static NOINLINE void *idle(void *n) { return (void *)other((long)n); }

static NOINLINE void in_thread(void *(*start)(void *), long n)
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, 0, start, (void *)n) && !pthread_join(thread, 0));
}

/* A handler on a stack that lies higher comes in the middle of a function that ends in a tail call. */
static NOINLINE void handler(int signal) { sunk += other(signal & 3); }
static NOINLINE long raises(long n)
{
	raise(SIGUSR1);
	return then(n);
}
static NOINLINE void *on_low_stack(void *n) { return (void *)(raises((long)n) + leaf(1)); }

static NOINLINE void handled(char *high)
{
	stack_t there = {.ss_sp = high, .ss_size = STACK}, none = {.ss_flags = SS_DISABLE};

	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
	sigaction(SIGUSR1, &action, 0);
	sigaltstack(&there, 0);
	CHECK(on_low_stack((void *)5) == (void *)10);
	sigaltstack(&none, 0);
}

int main(int argc, char **argv)
{
	char high[STACK];

	stack = malloc(STACK);
	if (is(argc, argv, "tail")) {
		begin(stack, 3);
		sunk += other(6); /* higher up: all frames of the coroutine are away */
		resume();
	} else if (is(argc, argv, "handler")) {
		handled(high);
	} else if (is(argc, argv, "tail-thread")) {
		begin(stack, 3);
		in_thread(resumes, 2);
	} else if (is(argc, argv, "reused")) { /* by a thread in the place of the one that began it */
		in_thread(begins, 3);
		in_thread(resumes, 2);
	} else if (is(argc, argv, "outlived")) { /* by the first thread; another is where it began */
		in_thread(begins, 3);
		in_thread(idle, 5);
		resume();
	} else if (is(argc, argv, "stale")) { /* three threads run coroutines on one stack, one at a time */
		begin(stack, 3);
		in_thread(begins, 3);
		begin(stack, 3);
		in_thread(resumes, 3);
	}
	printf("%ld %ld\n", sunk, other(4));
	return 0;
}
