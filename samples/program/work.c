// SPDX-License-Identifier: MIT
/*
 * Work whose results are known: recursion, callbacks, tail calls, variadic functions, structs by
 * value, arguments on the stack and in floating-point registers. A tracer that spoils a register,
 * the flags or the stack makes a check fail.
 */
#include <stdarg.h>

#include "program.h"

struct matrix {
	uint32_t cell[3][3];
};

static own_symbol uint32_t crc32_byte(uint32_t crc, uint8_t byte)
{
	crc ^= byte;
	for (int i = 0; i < 8; i++)
		crc = (crc >> 1) ^ (0xedb88320u & -(crc & 1));
	return crc;
}

own_symbol uint32_t crc32(const char *p, size_t n)
{
	uint32_t crc = ~0u;

	while (n--)
		crc = crc32_byte(crc, (uint8_t)*p++);
	return ~crc;
}

own_symbol uint32_t fib(uint32_t n)
{
	return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

/* One call, the rest are jumps: gcc turns the recursion into a loop. */
own_symbol uint32_t gcd(uint32_t a, uint32_t b)
{
	return b ? gcd(b, a % b) : a;
}

static own_symbol int ascending(uint32_t a, uint32_t b)
{
	return a > b;
}

static own_symbol int descending(uint32_t a, uint32_t b)
{
	return a < b;
}

/* Volatile, so that it stays a table: RELATIVE relocations in position-independent programs. */
static int (*const volatile orders[])(uint32_t, uint32_t) = { ascending, descending };

own_symbol void sort(uint32_t *base, size_t n, int (*after)(uint32_t, uint32_t))
{
	for (size_t i = 1; i < n; i++)
		for (size_t k = i; k && after(base[k - 1], base[k]); k--) {
			uint32_t t = base[k];

			base[k] = base[k - 1];
			base[k - 1] = t;
		}
}

own_symbol struct matrix multiply(struct matrix a, struct matrix b)
{
	struct matrix c;

	for (int i = 0; i < 3; i++)
		for (int k = 0; k < 3; k++) {
			c.cell[i][k] = 0;
			for (int m = 0; m < 3; m++)
				c.cell[i][k] += a.cell[i][m] * b.cell[m][k];
		}
	return c;
}

own_symbol struct matrix power(struct matrix base, unsigned int n)
{
	struct matrix result = { { { 1, 0, 0 }, { 0, 1, 0 }, { 0, 0, 1 } } };

	for (; n; n >>= 1) {
		if (n & 1)
			result = multiply(result, base);
		base = multiply(base, base);
	}
	return result;
}

own_symbol uint32_t sum_of(unsigned int count, ...)
{
	uint32_t sum = 0;
	va_list list;

	va_start(list, count);
	while (count--)
		sum += va_arg(list, uint32_t);
	va_end(list);
	return sum;
}

own_symbol uint32_t ten_arguments(uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t e,
				  uint32_t f, uint32_t g, uint32_t h, uint32_t i, uint32_t k)
{
	return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * k;
}

own_symbol double eight_doubles(double a, double b, double c, double d, double e, double f,
				double g, double h)
{
	return a + b * 2 + c * 4 + d * 8 + e * 16 + f * 32 + g * 64 + h * 128;
}

/* main.c has a static function of this name too. */
static own_symbol uint32_t mix(uint32_t sum, uint32_t value)
{
	return (sum ^ value) * 16777619u;
}

static own_symbol unsigned int check(uint32_t *sum, uint32_t got, uint32_t expected)
{
	*sum = mix(*sum, got);
	return got != expected;
}

own_symbol unsigned int work(uint32_t *sum)
{
	static const struct matrix fibonacci = { { { 1, 1, 0 }, { 1, 0, 0 }, { 0, 0, 1 } } };
	uint32_t words[6] = { 5, 3, 9, 1, 7, 3 };
	unsigned int failed = 0;

	failed += check(sum, crc32("123456789", 9), 0xcbf43926);
	failed += check(sum, fib(12), 144);
	failed += check(sum, gcd(1071, 462), 21);
	for (unsigned int i = 0; i < sizeof(orders) / sizeof(*orders); i++) {
		sort(words, 6, orders[i]);
		failed += check(sum, words[0] * 10 + words[5], i ? 91 : 19);
	}
	failed += check(sum, power(fibonacci, 30).cell[0][1], 832040);
	failed += check(sum, sum_of(4, 1u, 20u, 300u, 4000u), 4321);
	failed += check(sum, ten_arguments(1, 2, 3, 4, 5, 6, 7, 8, 9, 10), 385);
	failed += check(sum, (uint32_t)eight_doubles(1, 1, 1, 1, 1, 1, 1, 1), 255);
	return failed;
}
