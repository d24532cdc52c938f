// SPDX-License-Identifier: MIT
/* For stepper.c: traced calls between two breakpoints, and handlers that come anywhere among them.
 *
 *     stepped HANDLER STACK DEPTH WHERE
 *
 *     HANDLER  returns | jumps | many (its calls are more than a tracer takes for a handler's)
 *     STACK    of handlers: same | low | high (above all that they interrupt, and near)
 *     DEPTH    calls that are open
 *     WHERE    call | thread (the first of one) | fork (the first of a child)
 *
 * The calls that were made, the jumps, and the rounds go to stderr. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"

struct counts { long calls, jumps, rounds, more; };
static struct counts *all;
/* Whether to begin anew, at a round's end. */
static inline int breakpoint(void)
{
	int more = 0;

	all->rounds++;
	__asm__ __volatile__("int3" : "+a"(more) : : "memory");
	return more;
}

static volatile sig_atomic_t jumping, many;
static sigjmp_buf out;
static volatile long sunk;
static long (*volatile deep)(long), (*volatile at)(long); /* lest a recursion become a loop */

#define COUNT() __atomic_fetch_add(&all->calls, 1, __ATOMIC_RELAXED)

static NOINLINE long leaf(long n) { COUNT(); return n + 1; }
static NOINLINE long tail(long n) { COUNT(); return leaf(n + 1); }
static NOINLINE long both(long n) { COUNT(); return tail(n) + leaf(n); }
static NOINLINE long count_deep(long n) { COUNT(); return n ? deep(n - 1) + 1 : leaf(n); }
static NOINLINE void often(void) { COUNT(); for (long i = 0; i < 70000; i++) sunk += leaf(i); }

static NOINLINE void handler(int signal)
{
	COUNT();
	if (many)
		often();
	CHECK(deep(signal == SIGUSR1 ? 6 : 3) == (signal == SIGUSR1 ? 7 : 4));
	if (jumping) {
		__atomic_fetch_add(&all->jumps, 1, __ATOMIC_RELAXED);
		siglongjmp(out, 1);
	}
}

static NOINLINE int one(void)
{
	volatile int more;

	COUNT();
	if (!sigsetjmp(out, 1)) {
		breakpoint();
		CHECK(both(3) == 9);
	} else {
		leaf(1);
	}
	more = breakpoint();
	CHECK(both(4) == 11);
	CHECK(deep(3) == 4);
	return more;
}

static NOINLINE long count_at(long level)
{
	COUNT();
	if (level)
		return at(level - 1) + 1;
	while (one())
		;
	return 0;
}

static void on_stack(char *low)
{
	stack_t stack = {.ss_sp = low, .ss_size = 1 << 16};

	sigaltstack(&stack, 0);
}

#define UNTRACED __attribute__((noinline, patchable_function_entry(0)))

/* Its first traced call is between the breakpoints. */
static UNTRACED void *begins(void *unused)
{
	char high[1 << 16];

	on_stack(high);
	(void)unused;
	if (!sigsetjmp(out, 1)) {
		breakpoint();
		CHECK(both(3) == 9);
	} else {
		leaf(1);
	}
	all->more = breakpoint();
	CHECK(both(4) == 11);
	CHECK(deep(3) == 4);
	return 0;
}

static UNTRACED void threads(void)
{
	pthread_t thread;

	do {
		CHECK(!pthread_create(&thread, 0, begins, 0));
		pthread_join(thread, 0);
	} while (all->more);
}

static UNTRACED void children(void)
{
	int status;

	do {
		if (!fork()) {
			begins(0);
			_exit(7);
		}
		CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 7);
	} while (all->more);
}

int main(int argc, char **argv)
{
	static char low[1 << 16];
	char high[1 << 16];
	struct sigaction action = {.sa_handler = handler};

	if (argc < 5)
		return 2;
	all = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	deep = count_deep;
	at = count_at;
	COUNT();
	jumping = !strcmp(argv[1], "jumps");
	many = !strcmp(argv[1], "many");
	if (strcmp(argv[2], "same")) {
		action.sa_flags = SA_ONSTACK;
		on_stack(argv[2][0] == 'l' ? low : high);
	}
	sigaction(SIGUSR1, &action, 0);
	sigaction(SIGUSR2, &action, 0);
	if (is(argc - 3, argv + 3, "thread"))
		threads();
	else if (is(argc - 3, argv + 3, "fork"))
		children();
	else
		CHECK(at(atol(argv[3])) == atol(argv[3]));
	fprintf(stderr, "%ld %ld %ld\n", all->calls, all->jumps, all->rounds / 2);
	puts("done");
	return 0;
}
