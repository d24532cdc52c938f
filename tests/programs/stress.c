// SPDX-License-Identifier: MIT
/* Threads, signals and forks at once. Every traced function counts its own calls, those of children
 * too; the sum is printed. "jump": handlers leave by siglongjmp; "forks": they fork; "early": signals
 * come before the first call of a child or a thread. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"

enum { LATEST = 100000 };
struct shared { atomic_long calls, jumps, signals, forked; };
static struct shared *all;
static sigset_t alarm_only;
static int jumping, forking, early;
static volatile int period, late;
static atomic_long turns, seen;
static __thread sigjmp_buf out;
static __thread volatile sig_atomic_t ready, depth;

#define COUNT() atomic_fetch_add(&all->calls, 1)

static NOINLINE long count_leaf(long n) { COUNT(); return n * 3 + 1; }
/* By pointers, lest a recursion become a loop: then one call counts several times. */
static long (*volatile fib)(long), (*volatile down)(long), (*volatile child_of)(long);
static NOINLINE long count_fib(long n) { COUNT(); return n < 2 ? n : fib(n - 1) + fib(n - 2); }
static NOINLINE long count_tail(long n) { COUNT(); return count_leaf(n + 1); }
static NOINLINE long count_down(long n) { COUNT(); return n ? down(n - 1) + count_tail(n) : fib(4); }
static NOINLINE void count_handler(long n) { COUNT(); count_down(n & 3); }

/* The next signal comes when one was handled, and later and later where nobody takes a turn meanwhile:
 * if handlers take longer than it takes for the next signal to come, nothing else ever runs. */
static void next(void)
{
	long now = turns;

	late = now != atomic_exchange(&seen, now) ? 0 : late < LATEST ? 2 * late + 20 : LATEST;
	setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, period ? period + late : 0}}, 0);
}

static void storm(int us)
{
	period = us;
	seen = -1;
	next();
}

static void handler(int signal)
{
	long number = atomic_fetch_add(&all->signals, 1);

	count_handler(signal + number);
	if (forking && ready && number % 7 == 0 && atomic_fetch_add(&all->forked, 1) < 30)
		if (!fork()) {
			depth = 1;
			period = 0; /* and no storm */
			count_down(20);
		}
	next();
	if (jumping && ready && number % 3 == 0) {
		ready = 0;
		atomic_fetch_add(&all->jumps, 1);
		siglongjmp(out, 1);
	}
}

static NOINLINE long count_child(long n)
{
	pid_t child;

	COUNT();
	if (n)
		return child_of(n - 1) + 1;
	child = fork();
	if (!child && (early || fib(2)))
		storm(100); /* a child inherits no timer */
	return child;
}

static NOINLINE void *count_thread(void *argument)
{
	long number = (long)argument;

	COUNT();
	pthread_sigmask(SIG_UNBLOCK, &alarm_only, 0);
	for (volatile long i = 0; i < 40; i++, turns++) {
		sigsetjmp(out, 1);
		ready = 1;
		CHECK(count_down(number % 17 + i) > 0);
		ready = 0;
		if (depth) { /* the child of a handler */
			for (int j = 0; j < 30; j++)
				fib(10);
			_exit(7);
		}
	}
	if (!forking && number % 5 == 0) {
		if (count_child(number % 9) == number % 9) { /* the child */
			for (int i = 0; i < 30; i++, turns++)
				count_fib(10);
			_exit(7);
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = handler};
	pthread_t threads[4];
	int status;

	all = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	fib = count_fib;
	down = count_down;
	child_of = count_child;
	jumping = is(argc, argv, "jump");
	early = is(argc, argv, "early");
	forking = is(argc, argv, "forks");
	sigaction(SIGALRM, &action, 0);
	sigaddset(&alarm_only, SIGALRM);
	if (!early)
		pthread_sigmask(SIG_BLOCK, &alarm_only, 0); /* until a thread's first call is done */
	storm(150);
	/* How many signals come meanwhile is up to the machine. */
	for (long round = 0; round < 40 || (forking && all->forked < 15 && round < 4000); round++) {
		for (long i = 0; i < 4; i++)
			CHECK(!pthread_create(&threads[i], 0, count_thread, (void *)(round * 4 + i)));
		for (int i = 0; i < 4; i++)
			pthread_join(threads[i], 0);
	}
	storm(0);
	while (wait(&status) > 0)
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	printf("%ld %ld\n", atomic_load(&all->calls), all->jumps + (all->forked < 30 ? all->forked : 30));
	return 0;
}
