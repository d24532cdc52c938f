// SPDX-License-Identifier: MIT
/* Nothing but readings of the clock that the tracers read, as often as argv[1] says. */
#include <stdlib.h>

static unsigned long now(void)
{
#ifdef __x86_64__
	unsigned low, high;

	__asm__ __volatile__("rdtsc" : "=a"(low), "=d"(high));
	return (unsigned long)high << 32 | low;
#else
	unsigned long ticks;

	__asm__ __volatile__("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
#endif
}

int main(int argc, char **argv)
{
	long left = argc > 1 ? atol(argv[1]) : 0;
	unsigned long sum = 0;

	while (left-- > 0)
		sum += now();
	return sum == 1;
}
