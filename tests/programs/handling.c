// SPDX-License-Identifier: MIT
/* A program with signals that arrive while it is in somebody else's code, of whose bounds it is told:
 *
 *     left LOW HIGH ...   a handler called there has returned; the program waits for a line, in a
 *                         function whose large buffer has the frame of the signal in it yet
 *     in LOW HIGH ...     the handler waits for a line; `on`: on a stack of its own; `both`: in
 *                         another one on that stack, which has interrupted it
 *     calls               as `left`, after a call and without a signal
 *
 * It says `there` when it waits, and 7 afterwards. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#define CALLED __attribute__((noinline, noipa))

static unsigned long bounds[16];
static int count;
static volatile sig_atomic_t was_there, way;

CALLED long work(long n)
{
	return n * 3 + 1;
}

CALLED void waits(void)
{
	char c;

	if (write(1, "there\n", 6) != 6)
		abort();
	do {
		if (read(0, &c, 1) != 1)
			abort();
	} while (c != '\n');
}

CALLED void waits_below_buffer(void)
{
	volatile char buffer[1 << 14];

	buffer[0] = 1;
	waits();
	buffer[0] = 2;
}

static void on_other(int number)
{
	(void)number;
	waits();
}

static void on_alarm(int number, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	unsigned long ip = (unsigned long)uc->uc_mcontext.gregs[REG_RIP];
	struct itimerval none = {{0, 0}, {0, 0}};
	int i;

	(void)number, (void)info;
	for (i = 0; i + 1 < count && !was_there; i += 2) {
		if (ip < bounds[i] || ip >= bounds[i + 1])
			continue;
		was_there = 1;
		setitimer(ITIMER_REAL, &none, 0);
		if (way == 'b')
			raise(SIGUSR1);
		else if (way != 'l')
			waits();
	}
}

int main(void)
{
	struct itimerval often = {{0, 300}, {0, 300}};
	struct sigaction act = {.sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO};
	struct sigaction other = {.sa_handler = on_other, .sa_flags = SA_ONSTACK};
	stack_t stack = {.ss_size = 1 << 16};
	char line[512], *at;
	long sum = 0;

	stack.ss_sp = mmap(0, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sigaction(SIGUSR1, &other, 0);
	setbuf(stdin, 0);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		way = line[0];
		stack.ss_flags = way == 'o' || way == 'b' ? 0 : SS_DISABLE;
		sigaltstack(&stack, 0);
		act.sa_flags = SA_SIGINFO | (way == 'o' ? SA_ONSTACK : 0);
		sigaction(SIGALRM, &act, 0);
		at = strchr(line, ' ');
		for (count = 0; count < 16 && at && *at == ' '; count++)
			bounds[count] = strtoul(at, &at, 16);
		was_there = 0;
		if (count)
			setitimer(ITIMER_REAL, &often, 0);
		do
			sum += work(1) - 4;
		while (count && !was_there);
		if (way == 'l' || way == 'c')
			waits_below_buffer();
		printf("%ld\n", sum + work(2));
		fflush(stdout);
	}
	return 7;
}
