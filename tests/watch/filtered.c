// SPDX-License-Identifier: MIT
/* Variables that take many values in turn. How often each comparison held after an access, the
 * program counts itself: with its compiler's types, and in the form that a filter has. */
#include <math.h>
#include <stdio.h>

#define COUNT(of) (int)(sizeof(of) / sizeof(*of))

volatile int number;
volatile unsigned short small;
volatile double real;
enum level { LOW = -2, HIGH = 70000 } volatile level;

static const long numbers[] = {0, 1, -1, 9, 10, 11, 0x7fffffff, -0x7fffffff - 1, 0xffff, 0x8000, -10};
static const double reals[] = {0.0, -0.0, 1.5, -1.5, 0x1p-1074, INFINITY, -INFINITY, NAN, -NAN, 1e22};
static const enum level levels[] = {LOW, HIGH, LOW, LOW, HIGH};

__attribute__((noinline, noipa)) void put_number(int to) { number = to; }
__attribute__((noinline, noipa)) void put_again(int to) { number = to; }
__attribute__((noinline, noipa)) void put_small(int to) { small = (unsigned short)to; }
__attribute__((noinline, noipa)) void put_real(double to) { real = to; }
__attribute__((noinline, noipa)) void put_level(enum level to) { level = to; }

static unsigned wanted[%(many)d];

int main(void)
{
	int i, n, last = 0;

	for (i = 0; i < COUNT(numbers) * COUNT(numbers); i++) {
		n = (int)numbers[i %% 2 ? i / 2 %% COUNT(numbers) : i / COUNT(numbers)];
		{
			int old = number, new = n, in_again = i %% 3 == 0;
			%(number)s
			(void)old, (void)new, (void)in_again;
		}
		(i %% 3 ? put_number : put_again)(n);
		{
			unsigned short old = small, new = (unsigned short)n;
			%(small)s
			(void)old, (void)new;
		}
		put_small(n);
	}
	for (i = 0; i < COUNT(reals) * COUNT(reals); i++) {
		double old = real, new = reals[i %% 2 ? i %% COUNT(reals) : i / COUNT(reals)];
		%(real)s
		(void)old, (void)new;
		put_real(new);
	}
	for (i = 0; i < COUNT(levels); i++) {
		enum level old = level, new = levels[i];
		%(level)s
		(void)old, (void)new;
		put_level(new);
	}
	for (i = 0; i < %(many)d; i++)
		printf("%%u ", wanted[i]);
	return last;
}
