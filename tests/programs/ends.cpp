// SPDX-License-Identifier: MIT
// Exceptions that nobody catches, and among them calls that longjmp ends.
#include <csetjmp>
#include <exception>
#include <stdexcept>
#include "check.h"

namespace {

jmp_buf out;
long destroyed;
struct Counted {
	NOINLINE ~Counted() { destroyed++; }
};

NOINLINE long leaf(long n) { return n * 3 + 1; }

NOINLINE long down(long n)
{
	Counted counted;

	if (n)
		return down(n - 1) + leaf(n);
	throw std::runtime_error("down");
}

NOINLINE long caught(long n)
{
	try {
		return down(n);
	} catch (...) {
		return leaf(n);
	}
}

NOINLINE void jump(long n)
{
	if (n)
		jump(n - 1);
	longjmp(out, 1);
}

/* The frames that longjmp ends have nothing to destroy. */
NOINLINE long mixed(long n)
{
	volatile long total = 0;

	for (volatile long i = 0; i < n; i++) {
		if (!setjmp(out))
			jump(i % 12);
		total = total + caught(i % 9);
	}
	return total;
}

NOINLINE void ending()
{
	std::printf("terminating %ld\n", caught(3));
	std::fflush(stdout);
	std::_Exit(42);
}

} // namespace

int main(int argc, char **argv)
{
	std::printf("%ld\n", mixed(120));
	std::printf("%ld\n", destroyed);
	std::fflush(stdout);
	if (is(argc, argv, "noexcept"))
		return [](long n) noexcept { return static_cast<int>(down(n)); }(4);
	if (is(argc, argv, "terminate"))
		std::set_terminate(ending);
	return argc > 1 ? static_cast<int>(down(9)) : 0;
}
