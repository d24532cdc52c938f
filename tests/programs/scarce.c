// SPDX-License-Identifier: MIT
/* gcc keeps a value in every register that a callee, whose code it has seen, does not change; it does
 * that (-fipa-ra) where only an attribute asks for pads. */
#include <sys/resource.h>
#include "check.h"

#if defined(__aarch64__) || defined(__powerpc64__) || defined(__loongarch__)
#define PAD __attribute__((patchable_function_entry(2)))
#elif defined(__arm__) || defined(__s390x__)
#define PAD __attribute__((patchable_function_entry(3)))
#elif defined(__riscv)
#define PAD __attribute__((patchable_function_entry(4)))
#else
#define PAD __attribute__((patchable_function_entry(5)))
#endif

static long total;

PAD static NOINLINE long add(long n)
{
	total += n;
	return total;
}

static NOINLINE long mixed(const long *p)
{
	long a = p[0], b = p[1], c = p[2], d = p[3], e = p[4], f = p[5];
	long g = p[6], h = p[7], i = p[8], j = p[9], k = p[10], sum = 0;

	for (long n = 0; n < 10; n++) {
		sum += add(n);
		a += b; b ^= c; c += d; d ^= e; e += f; f ^= g;
		g += h; h ^= i; i += j; j ^= k; k += sum;
	}
	return a + b * 2 + c * 3 + d * 4 + e * 5 + f * 6 + g * 7 + h * 8 + i * 9 + j * 10 + k * 11;
}

int main(void)
{
	struct rlimit seconds = {5, 5};
	long words[11];

	setrlimit(RLIMIT_CPU, &seconds); /* the loop has no end if its counter is lost */
	for (int i = 0; i < 11; i++)
		words[i] = i * 1234567L;
	printf("%lx\n", mixed(words));
	return 0;
}
