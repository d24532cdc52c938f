// SPDX-License-Identifier: MIT
/* Exceptions through calls that are traced, and values that lie in their callers' frames. */
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>

#define NOINLINE __attribute__((noinline))

struct Guard {
	int n;
	std::string &log;
	NOINLINE Guard(int n, std::string &log) : n(n), log(log) {}
	NOINLINE ~Guard() { log += std::to_string(n); }
};

static NOINLINE std::string name(int n) { return std::string(n % 40, 'n') + std::to_string(n); }

static NOINLINE int deep(int n, std::string &log)
{
	Guard guard(n, log);

	if (!n)
		throw std::runtime_error(name(42));
	return deep(n - 1, log) + guard.n;
}

static NOINLINE int again(int n, std::string &log)
{
	try {
		return deep(n, log);
	} catch (std::exception &e) {
		log += e.what();
		throw;
	}
}

static NOINLINE int tail(int n, std::string &log) { return again(n, log); }

static NOINLINE std::string catches(int n)
{
	std::string log;

	for (int i = 0; i < n; i++)
		try {
			log += std::to_string(tail(i, log));
		} catch (std::runtime_error &e) {
			log += name(i) + e.what();
		}
	return log;
}

int main()
{
	std::string here = catches(5), there;

	std::thread([&] { there = catches(5); }).join();
	std::printf("%s %d\n", here.c_str(), here == there);
	return static_cast<int>(here.size() & 63);
}
