// SPDX-License-Identifier: MIT
/* Every way to pass arguments and get values back. */
#include <alloca.h>
#include <complex.h>
#include <stdarg.h>
#include <stdint.h>
#include "check.h"

typedef double v2 __attribute__((vector_size(16)));
typedef double v4 __attribute__((vector_size(32)));
struct pair { long a; double b; };
struct big { long word[9]; };
struct mixed { float x, y; int z; };
typedef long (*function)(long, long);

static NOINLINE double sum(const char *kinds, ...)
{
	double total = 0;
	va_list list;

	va_start(list, kinds);
	for (; *kinds; kinds++)
		switch (*kinds) {
		case 'i': total += va_arg(list, int); break;
		case 'd': total += va_arg(list, double); break;
		case 'L': total += (double)va_arg(list, long double); break;
		case 'b': total += (double)va_arg(list, struct big).word[8]; break;
		default: total += (double)va_arg(list, long);
		}
	va_end(list);
	return total;
}

static NOINLINE long double extended(long double a, double b, float c) { return a * b + c; }
static NOINLINE double _Complex twisted(double _Complex z, long double _Complex w) { return z * (double _Complex)w; }
static NOINLINE v2 two(v2 a, v2 b) { return a * b + a; }
static NOINLINE struct pair paired(struct pair p, long n) { return (struct pair){p.a + n, p.b * (double)n}; }
static NOINLINE struct mixed mix(struct mixed m, float by) { return (struct mixed){m.x * by, m.y + by, m.z + 1}; }
static NOINLINE int64_t doubled(int64_t a, uint32_t b) { return a * b; } /* two registers, or one */
#ifdef __SIZEOF_INT128__
static NOINLINE __int128 wide(__int128 a, uint64_t b) { return a * b; }
#endif
static NOINLINE long last(long a, long b, long c, long d, long e, long f, struct big on_stack, long h)
{
	return a + b * 2 + c * 3 + d * 4 + e * 5 + f * 6 + on_stack.word[8] + h * 7;
}

static NOINLINE struct big large(long seed)
{
	struct big value;

	for (int i = 0; i < 9; i++)
		value.word[i] = seed * (i + 1);
	return value;
}

static NOINLINE long add(long a, long b) { return a + b; }
static NOINLINE long sub(long a, long b) { return a - b; }
static NOINLINE long apply(function f, long a, long b) { return f(a, b); } /* a tail call */
static NOINLINE long odd(long n);
static NOINLINE long even(long n) { return n ? odd(n - 1) : 1; }
static NOINLINE long odd(long n) { return n ? even(n - 1) : 0; }

static NOINLINE long deep(volatile long n) { return n ? deep(n - 1) + n % 2 : 0; }

static NOINLINE long scratch(long n)
{
	unsigned char *room = alloca((size_t)n);
	long total = 0;

	memset(room, (int)n & 0x7f, (size_t)n);
	for (long i = 0; i < n; i++)
		total += room[i];
	return n > 16 ? total + scratch(n / 2) : total;
}

#ifdef __x86_64__
__attribute__((target("avx"), noinline)) static v4 four(v4 a, v4 b, double c) { return a * b + c; }
__attribute__((target("avx"), noinline)) static double vectors(double seed)
{
	v4 value = {seed, 2, 3, 4};

	for (int i = 0; i < 3; i++)
		value = four(value, (v4){1, 2, 1, 2}, 0.5);
	return value[0] + value[1] + value[2] + value[3];
}
#endif

int main(void)
{
	struct big one = large(3);
	v2 halves = two((v2){1.5, 2.5}, (v2){2, 4});
	double _Complex turned = twisted(1 + 2 * I, 3 - 1 * I);
	struct pair p = paired((struct pair){4, 2.5}, 3);
	struct mixed m = mix((struct mixed){1.5f, 2.5f, 7}, 2);
	double avx = 62;

	CHECK(sum("idlLbdi", 1, 2.5, 3L, 4.25L, one, 0.25, 7) == 45.0);
	CHECK(sum("dddddddddd", 1., 2., 3., 4., 5., 6., 7., 8., 9., 10.) == 55.0);
	CHECK(extended(1.5L, 2, 3) == 6 && halves[0] == 4.5 && halves[1] == 12.5);
	CHECK(creal(turned) == 5 && cimag(turned) == 5 && p.a == 7 && p.b == 7.5);
	CHECK(m.x == 3 && m.y == 4.5f && m.z == 8 && last(1, 2, 3, 4, 5, 6, one, 8) == 174);
	CHECK(doubled((int64_t)1 << 40, 48) == (int64_t)3 << 44);
#ifdef __SIZEOF_INT128__
	CHECK((uint64_t)(wide((__int128)1 << 60, 48) >> 64) == 3);
#endif
	CHECK(apply(add, 40, 2) == 42 && apply(sub, 40, 2) == 38 && even(2001) == 0);
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx"))
		avx = vectors(1.0);
	CHECK(avx == 62);
#endif
	printf("%ld %ld %ld %g\n", deep(1), deep(5000), scratch(1000), avx);
	return 0;
}
