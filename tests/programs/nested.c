// SPDX-License-Identifier: MIT
/* Functions within functions (of gcc): called with a static chain, by trampolines, left by goto. */
#include "check.h"

static volatile long count;

static NOINLINE long leaf(long n) { return n * 3 + 1; }

#ifdef __clang__
static NOINLINE long nested(long by) { return 12 * by * 10 + 3; }
static NOINLINE long nonlocal(long n) { return n; }
#else
static NOINLINE long twice(long (*inner)(long), long n) { return inner(n) + inner(n + 1); }

static NOINLINE long nested(long by)
{
	long calls = 0;
	NOINLINE long inner(long n) { calls++; return n * by; }
	long value = twice(inner, 5) + inner(1);

	return value * 10 + calls;
}

/* goto out of calls, which ends them. */
static NOINLINE long nonlocal(long n)
{
	__label__ out;
	NOINLINE void inner(long left)
	{
		if (!left)
			goto out;
		inner(left - 1);
		count = leaf(count);
	}

	inner(n);
	return -1;
out:
	return n;
}
#endif

int main(void)
{
	for (long n = 0; n < 50; n++)
		CHECK(nonlocal(n) == n && nested(n) == n * 120 + 3);
	printf("%ld\n", leaf(nested(7)));
	return 0;
}
