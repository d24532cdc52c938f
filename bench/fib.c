// SPDX-License-Identifier: MIT
/* Calls and nothing else: fib(32) makes 7,049,155 of them. */
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static int fib(int n)
{
	return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

int main(int argc, char **argv)
{
	printf("%d\n", fib(argc > 1 ? atoi(argv[1]) : 10));
	return 0;
}
