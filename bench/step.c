// SPDX-License-Identifier: MIT
/* A program that calls one function as often as it is told. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noipa)) long step(long n, const char *text, const char *copy)
{
#ifdef UNFOLLOWED /* nobody can tell where it jumps, so only one instruction can be replaced */
	__asm__ volatile("lea 1f(%%rip), %%rdx; jmp *%%rdx; 1:" ::: "rdx");
#else
	__asm__ volatile("" : : "r"(text), "r"(copy));
#endif
	return n * 3 + 1;
}

int main(int argc, char **argv)
{
	long n = argc > 1 ? atol(argv[1]) : 1, sum = 0;
	const char *text = "sixteen letters!", *copy = strdup(text);

	for (long i = 0; i < n; i++)
		sum += step(i, text, copy);
	printf("%ld\n", sum);
	return 0;
}
