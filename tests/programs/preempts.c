// SPDX-License-Identifier: MIT
/* Coroutines that an alarm takes the processor from, wherever they are: in the tracer, say. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <ucontext.h>
#include "check.h"

enum { COUNT = 4, STACK = 256 << 10 };
static ucontext_t context[COUNT], home;
static volatile int current, left = COUNT, switches;
static volatile long sums[COUNT];
static sigset_t alarms;

static NOINLINE long fib(long n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

static void next(int signal)
{
	int from = current;

	(void)signal;
	switches++;
	current = (from + 1) % COUNT;
	swapcontext(&context[from], &context[current]);
}

/* Alarms are blocked until here: swapcontext() lets them in before it has left the stack that it is
 * on, and one that came then would be kept in place of this context. */
static void body(void)
{
	int own = current;

	sigprocmask(SIG_UNBLOCK, &alarms, 0);
	while (switches < 4000)
		sums[own] += fib(12 + own) != (own == 0 ? 144 : own == 1 ? 233 : own == 2 ? 377 : 610);
	__atomic_fetch_sub(&left, 1, __ATOMIC_RELAXED); /* an alarm may come between load and store */
	while (left)
		;
	setcontext(&home);
}

int main(void)
{
	struct itimerval timer = {{0, 100}, {0, 100}};
	struct sigaction action = {.sa_handler = next};
	struct rlimit seconds = {5, 5};

	setrlimit(RLIMIT_CPU, &seconds); /* what goes astray does not end by itself */
	sigemptyset(&alarms);
	sigaddset(&alarms, SIGALRM);
	sigprocmask(SIG_BLOCK, &alarms, 0);
	for (int i = 0; i < COUNT; i++) {
		getcontext(&context[i]);
		context[i].uc_stack.ss_sp = malloc(STACK);
		context[i].uc_stack.ss_size = STACK;
		makecontext(&context[i], body, 0);
	}
	sigaction(SIGALRM, &action, 0);
	setitimer(ITIMER_REAL, &timer, 0);
	volatile int again = 0;
	getcontext(&home);
	if (!again++)
		setcontext(&context[0]);
	timer.it_value.tv_usec = timer.it_interval.tv_usec = 0;
	setitimer(ITIMER_REAL, &timer, 0);
	for (int i = 0; i < COUNT; i++)
		CHECK(sums[i] == 0);
	printf("%ld\n", fib(10));
	return 0;
}
