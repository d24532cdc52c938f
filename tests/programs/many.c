// SPDX-License-Identifier: MIT
/* More functions than a table of a profile has places to begin with, each called three times. */
#include "check.h"

#define ONE(n) static NOINLINE long f##n(long x) { return x * 3 + n; }
#define TEN(n) ONE(n##0) ONE(n##1) ONE(n##2) ONE(n##3) ONE(n##4) \
	ONE(n##5) ONE(n##6) ONE(n##7) ONE(n##8) ONE(n##9)
#define ALL TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) TEN(9) TEN(10) TEN(11) TEN(12) \
	TEN(13) TEN(14) TEN(15) TEN(16) TEN(17) TEN(18) TEN(19) TEN(20) TEN(21) TEN(22) TEN(23) TEN(24) \
	TEN(25) TEN(26) TEN(27) TEN(28) TEN(29) TEN(30) TEN(31) TEN(32) TEN(33) TEN(34) TEN(35) TEN(36)

ALL
#undef ONE
#define ONE(n) f##n,
static long (*const functions[])(long) = {ALL};

int main(void)
{
	long total = 0;

	for (int round = 0; round < 3; round++)
		for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++)
			total = functions[i](total) % 1000003;
	printf("%ld\n", total);
	return 0;
}
