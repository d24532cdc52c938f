// SPDX-License-Identifier: MIT
/* Exceptions, while signals keep coming whose handler runs on a stack above the one that is walked up. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#define TRACED __attribute__((noinline))
static volatile long handled;
TRACED static long fibonacci(long n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
TRACED static long throws(long n)
{
	if (!n)
		throw n;
	long got = throws(n - 1);
	__asm__ volatile("");
	return got + 1;
}
TRACED static long catches(long n)
{
	try {
		return throws(n);
	} catch (long) {
		return 1;
	}
}
static void on_signal(int)
{
	handled += fibonacci(6) == 8;
}
int main(int argc, char **argv)
{
	char apart[1 << 16]; /* above the stack that is interrupted */
	struct itimerval every = {{0, 50}, {0, 50}};
	struct sigaction action;
	stack_t stack;
	long sum = 0, rounds = atol(argv[argc - 1]);

	memset(&action, 0, sizeof(action));
	memset(&stack, 0, sizeof(stack));
	stack.ss_sp = apart;
	stack.ss_size = sizeof(apart);
	sigaltstack(&stack, 0);
	action.sa_handler = on_signal;
	action.sa_flags = SA_ONSTACK | SA_RESTART;
	sigaction(SIGALRM, &action, 0);
	setitimer(ITIMER_REAL, &every, 0);
	for (long i = 0; i < rounds; i++)
		sum += catches(4);
	memset(&every, 0, sizeof(every));
	setitimer(ITIMER_REAL, &every, 0);
	printf("%ld %d\n", sum, handled > 0);
	return 0;
}
