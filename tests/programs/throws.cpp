// SPDX-License-Identifier: MIT
// Exceptions through traced frames: rethrown, nested, in threads, out of destructors.
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>
#include "check.h"

namespace {

thread_local long destroyed;
struct Counted { NOINLINE ~Counted() { destroyed++; } };
struct Throwing { NOINLINE ~Throwing() noexcept(false) { throw std::string("destructor"); } };
struct Own : std::runtime_error { using runtime_error::runtime_error; };

NOINLINE long leaf(long n) { return n * 3 + 1; }

NOINLINE long down(long n, long kind)
{
	Counted counted;

	if (n)
		return down(n - 1, kind) + leaf(n);
	if (kind == 0) throw 42;
	if (kind == 1) throw Own("own");
	throw std::string("text");
}

NOINLINE long caught(long n, long kind)
{
	try {
		return down(n, kind);
	} catch (int value) {
		return value;
	} catch (const std::exception &e) {
		return static_cast<long>(std::string(e.what()).size());
	} catch (...) {
		return 7 + leaf(1);
	}
}

NOINLINE long rethrown(long n)
{
	try {
		return n ? rethrown(n - 1) : down(3, 1);
	} catch (...) {
		leaf(n);
		throw;
	}
}

NOINLINE long nested(long n)
{
	try {
		return down(n, 0);
	} catch (int value) {
		long inner = n ? nested(n - 1) : caught(5, 2);
		try {
			throw Own("inside");
		} catch (Own &) {
			return value + inner;
		}
	}
}

NOINLINE long dropped(long n)
{
	try {
		Throwing throwing;
		Counted counted;
		leaf(n);
	} catch (const std::string &text) {
		return n + static_cast<long>(text.size());
	}
	return 0;
}

NOINLINE long pointers(long n)
{
	std::exception_ptr held;

	try { down(n, 1); } catch (...) { held = std::current_exception(); }
	try { std::rethrow_exception(held); } catch (Own &) { return leaf(n); }
}

NOINLINE long long everything(long rounds)
{
	long long total = 0;

	destroyed = 0;
	for (long n = 0; n < rounds; n++) {
		for (long kind = 0; kind < 3; kind++)
			total += caught(n, kind);
		try {
			total += rethrown(n);
		} catch (const Own &) {
			total++;
		}
		total += nested(n) + dropped(n) + pointers(n);
	}
	return total * 1000003 + destroyed;
}

} // namespace

int main(int argc, char **argv)
{
	const long rounds = argc > 1 ? atol(argv[1]) : 30;
	std::vector<long long> values(6);
	std::vector<std::thread> threads;
	long long expected = everything(rounds);

	for (long long &value : values)
		threads.emplace_back([&value, rounds] { value = everything(rounds); });
	for (size_t i = 0; i < threads.size(); i++) {
		threads[i].join();
		CHECK(values[i] == expected);
	}
	std::printf("%lld\n", expected);
	return 0;
}
