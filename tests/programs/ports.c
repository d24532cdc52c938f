// SPDX-License-Identifier: MIT
/* What is different from one architecture to another: how functions are called, and how they return. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include "check.h"

#define WHOLE __attribute__((noipa)) /* not taken apart by the compiler: its calls are counted */
#ifdef __i386__
#define POPS __attribute__((stdcall))
#define FAST __attribute__((fastcall))
#else
#define POPS
#define FAST
#endif
enum { THREADS = 50, ROUNDS = 6 };
struct big { long word[9]; };
struct small { float x; int y; };
static jmp_buf out;
static ucontext_t here, there;

static NOINLINE long fib(long n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

static NOINLINE double sum(int count, ...)
{
	double total = 0;
	va_list list;

	va_start(list, count);
	while (count--) {
		total += va_arg(list, int);
		total *= va_arg(list, double);
	}
	va_end(list);
	return total;
}

static NOINLINE struct big big(long seed)
{
	struct big value;

	for (int i = 0; i < 9; i++)
		value.word[i] = seed * i;
	return value;
}

static NOINLINE struct small small(struct small s, double by)
{
	return (struct small){(float)(s.x * by), s.y + 1};
}

static NOINLINE long long wide(long long a, unsigned b) { return a * b - 1; }
static NOINLINE long double extended(long double a, float b) { return a * b; }
static NOINLINE POPS int pops(int a, int b, int c, struct big d) { return a * b + c + (int)d.word[8]; }
static NOINLINE FAST int fast(int a, int b, int c, int d) { return a * b + c - d; }
static NOINLINE int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static NOINLINE void leave(long n)
{
	if (!n)
		longjmp(out, 7);
	leave(n - 1);
	__asm__ __volatile__("");
}

/* What was left has had its return address where arguments of the next call lie. */
static NOINLINE long left(long n)
{
	struct big value;

	if (!setjmp(out))
		leave(n);
	value = big(n);
	if (setjmp(out) == 0)
		leave(n + 1);
	return value.word[8] + big(n + 1).word[7] + pops(1, 2, 3, value);
}

/* Ends in a tail call, when its own frame has been left and has come back. */
static NOINLINE void last(void) { swapcontext(&there, &here); }
static NOINLINE void body(void)
{
	long value = fib(5);

	last();
	if (value != fib(5))
		return;
	last();
}

static NOINLINE long coroutine(void)
{
	static char stack[64 << 10];
	long total = 0;

	getcontext(&there);
	there.uc_stack.ss_sp = stack;
	there.uc_stack.ss_size = sizeof(stack);
	there.uc_link = &here;
	makecontext(&there, body, 0);
	for (int i = 0; i < 3; i++) {
		swapcontext(&here, &there);
		total += fib(i + 5); /* the coroutine's frames are left, then */
	}
	return total;
}

static NOINLINE void *thread(void *n) { return (void *)fib((long)n % 12); }

static NOINLINE long threads(void)
{
	pthread_t id[THREADS];
	long total = 0;
	void *value;

	for (int round = 0; round < ROUNDS; round++) {
		for (long i = 0; i < THREADS; i++)
			CHECK(!pthread_create(&id[i], 0, thread, (void *)i));
		for (int i = 0; i < THREADS; i++, total += (long)value)
			CHECK(!pthread_join(id[i], &value));
	}
	return total;
}

/* The child returns out of calls that its parent made. */
static NOINLINE int forked(int n)
{
	int status = 0;
	pid_t child;

	if (n)
		return forked(n - 1) + (int)fib(2);
	child = fork();
	if (!child)
		return 10;
	CHECK(child == waitpid(child, &status, 0));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + status;
}

WHOLE long leaf(long a, long b) { return a * 100 + b; }
WHOLE long branch(long n) { return n ? branch(n - 1) + leaf(n, -1) : 1; }
WHOLE long tree(long (*f)(long)) { return f(3) + leaf(7, 8) + 1; }

int main(void)
{
	int order[] = {5, 3, 1, 4}, value;
	pid_t self = getpid();
	struct small s = small((struct small){1.5f, 2}, 2.5);
	long double e = extended(1.5l, 3);

	printf("%ld %f %ld %f %d\n", fib(15), sum(3, 1, 2.5, 3, 4.5, 5, 6.5), big(3).word[8], s.x, s.y);
	printf("%lld %f %d %d\n", wide(1ll << 33, 3), (double)e, pops(1, 2, 3, big(1)), fast(1, 2, 3, 4));
	qsort(order, 4, sizeof(*order), compare);
	printf("%d%d%d%d %ld\n", order[0], order[1], order[2], order[3], left(3));
	printf("%ld %ld %ld\n", coroutine(), threads(), tree(branch));
	fflush(stdout);
	value = forked(3);
	if (getpid() != self)
		_exit(value);
	printf("%d\n", value);
	return 3;
}
