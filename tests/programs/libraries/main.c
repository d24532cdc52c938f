// SPDX-License-Identifier: MIT
/* What it says depends on every call of the library being made once, and coming back. */
#include "shared.h"
#include <stdio.h>

static int own(int n)
{
	return n * 3;
}

static int again(int n)
{
	int sum = through(n, own);

	return sum + tail(n, own);
}

int main(void)
{
	jmp_buf here;
	volatile int jumped = 0;

	printf("%d\n", through(5, again));
	printf("%d\n", was_started());
	printf("%d\n", deep(3, again));
	jumped = setjmp(here);
	if (jumped < 2)
		leap(here, jumped + 1);
	printf("%d\n", leaf(jumped));
	return 7;
}
