// SPDX-License-Identifier: MIT
/* arm64 without libc, whose parts are built without BTI: calls of a library, by name and by pointer. */
int times(int n);

__attribute__((noinline)) static int twice(int (*f)(int), int n)
{
	return f(n) + f(n + 1);
}

void begin(void)
{
	long sum = times(5) + twice(times, 6);
	register long number __asm__("x8") = 94; /* exit_group */
	register long status __asm__("x0") = sum;

	__asm__ __volatile__("svc #0" : : "r"(number), "r"(status));
	__builtin_unreachable();
}

__asm__("	.globl _start\n"
	"_start:	bti c\n"
	"	b begin\n");
