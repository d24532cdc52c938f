// SPDX-License-Identifier: MIT
/* Who called, at every instruction of a call of a library: the processor traps after each of them, and
 * a handler unwinds to main(). */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
#include <unwind.h>

int main(void);

static int steps, lost, reached, sum;

static _Unwind_Reason_Code each(struct _Unwind_Context *context, void *unused)
{
	uintptr_t start = _Unwind_GetRegionStart(context);

	(void)unused;
	reached |= start == (uintptr_t)main;
	return reached ? _URC_END_OF_STACK : _URC_NO_REASON;
}

static void step(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)info;
	steps++;
	reached = 0;
	_Unwind_Backtrace(each, NULL);
	if (!reached && lost++ < 9)
		printf("lost at %#llx\n", ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP]);
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = step, .sa_flags = SA_SIGINFO};

	sigaction(SIGTRAP, &action, NULL);
	sum = labs(-1); /* bound */
	_Unwind_Backtrace(each, NULL);
	__asm__ __volatile__("pushfq; orl $0x100, (%%rsp); popfq" : : : "memory", "cc");
	for (int i = 0; i < 3; i++)
		sum += labs(-i);
	__asm__ __volatile__("pushfq; andl $~0x100, (%%rsp); popfq" : : : "memory", "cc");
	printf("%d %d steps, %d lost\n", sum, steps, lost);
	return lost ? 1 : 0;
}
