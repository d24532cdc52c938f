// SPDX-License-Identifier: MIT
/* A storm of signals: handlers that are traced, on stacks of their own, that jump out. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>
#include "check.h"

enum { ROUNDS = 25, ENOUGH = 40, DEEPEST = 4, LATEST = 100000 };
static volatile sig_atomic_t arrived, jumping, leaving, inside, period, late, turns, seen;
static sigjmp_buf out;
static volatile long sunk;

static NOINLINE long fib(long n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
static NOINLINE void handled(int n) { sunk += fib(n & 3); }

/* A signal comes only when one was handled, or some are being: with a timer that runs by itself, a
 * machine that is slow enough fills any stack with handlers. And it comes later and later where what
 * is interrupted takes no turn meanwhile: if handlers take longer than it takes for the next signal to
 * come, nothing else ever runs. */
static void next(void)
{
	setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, period ? period + late : 0}}, 0);
}

static void alarmed(int signal)
{
	if (leaving) /* or handlers that are about to jump out pile up, if they are slow */
		return;
	arrived++;
	if (++inside < DEEPEST && (jumping || turns != seen))
		next();
	handled(signal + arrived);
	if (jumping && arrived % 3 == 0) {
		leaving = 1;
		siglongjmp(out, 1);
	}
	inside--;
	late = jumping || turns != seen ? 0 : late < LATEST ? 2 * late + 20 : LATEST;
	seen = turns;
	next();
}

/* A tail call in every other level, so that frames share their place. */
static NOINLINE long down(long n);
static NOINLINE long tail(long n) { return down(n - 1); }
static NOINLINE long down(long n) { return n <= 0 ? fib(5) : n & 1 ? tail(n) : down(n - 1) + 1; }

static void storm(int us)
{
	period = us;
	late = 0;
	next();
}

static NOINLINE void install(int flags)
{
	struct sigaction action = {.sa_handler = alarmed, .sa_flags = flags};

	sigemptyset(&action.sa_mask);
	sigaction(SIGALRM, &action, 0);
}

static NOINLINE void calm(int flags)
{
	install(flags);
	for (int round = 0; round < ROUNDS; round++)
		for (arrived = 0, storm(40); arrived < ENOUGH; turns++)
			CHECK(down(20) == 15);
	storm(0);
}

/* Every third signal ends the calls that it interrupts. */
static NOINLINE void jumpy(int flags)
{
	volatile int jumps = 0;

	install(flags);
	jumping = 1;
	if (sigsetjmp(out, 1))
		jumps++;
	leaving = inside = 0;
	for (storm(60); jumps < 300;)
		CHECK(down(12) == 11);
	storm(0);
	jumping = 0;
}

static void broken(int signal)
{
	handled(signal);
	siglongjmp(out, 2);
}

static NOINLINE int touch(volatile char *nowhere) { return *nowhere + 1; }
static NOINLINE void overflow(long n)
{
	volatile char room[512];

	room[n & 511] = 1;
	overflow(n + 1);
	room[0] = room[1];
}

static NOINLINE void faults(void)
{
	struct sigaction action = {.sa_handler = broken, .sa_flags = SA_ONSTACK};
	char *page = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	sigaction(SIGSEGV, &action, 0);
	for (volatile int i = 0; i < 200; i++)
		if (!sigsetjmp(out, 1)) {
			touch(page + i);
			CHECK(!"a fault");
		}
	for (volatile int i = 0; i < 2; i++)
		if (!sigsetjmp(out, 1))
			overflow(0); /* of the stack */
	signal(SIGSEGV, SIG_DFL);
}

int main(void)
{
	static char low[1 << 16];
	char high[1 << 16];
	stack_t stack = {.ss_sp = low, .ss_size = sizeof(low)};

	calm(0);
	jumpy(SA_NODEFER);
	sigaltstack(&stack, 0);
	calm(SA_ONSTACK);
	jumpy(SA_ONSTACK);
	faults();
	stack.ss_sp = high; /* above all that it interrupts, and near */
	sigaltstack(&stack, 0);
	calm(SA_ONSTACK);
	jumpy(SA_ONSTACK);
	printf("%s\n", sunk ? "done" : "nothing");
	return 0;
}
