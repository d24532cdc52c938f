// SPDX-License-Identifier: MIT
/* A program that raises a signal by an instruction, and goes on behind it, as often as it is told. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

static void skip(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)info;
	((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_sigaction = skip, .sa_flags = SA_SIGINFO};
	long n = argc > 1 ? atol(argv[1]) : 1;

	sigaction(SIGILL, &action, 0);
	for (long i = 0; i < n; i++)
		__asm__ volatile("ud2");
	printf("%ld\n", n);
	return 0;
}
