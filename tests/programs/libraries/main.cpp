// SPDX-License-Identifier: MIT
/* Exceptions in both directions, threads and children in the library. */
#include "shared.h"
#include <cstdio>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

static int throws(int n)
{
	return thrower(n);
}

static int passes(int n)
{
	return through(n, throws);
}

static int own(int n)
{
	if (n == 7)
		throw std::runtime_error("own");
	return n;
}

static void work(int n, int *out)
{
	*out = count(n);
}

int main()
{
	int out[8], status;
	std::vector<std::thread> threads;

	for (int i = 0; i < 5; i++) {
		try {
			std::printf("%d\n", through(i, passes));
		} catch (const std::exception &e) {
			std::printf("caught %s\n", e.what());
		}
		std::printf("%d\n", catcher(i, passes));
	}
	std::printf("%d %d\n", catcher(7, own), was_started());
	for (int i = 0; i < 8; i++)
		threads.emplace_back(work, i * 50, &out[i]);
	for (auto &thread : threads)
		thread.join();
	for (int n : out)
		std::printf("%d\n", n);
	std::fflush(stdout);
	if (!fork()) {
		std::printf("child %d\n", count(4));
		std::fflush(stdout);
		_exit(leaf(5));
	}
	wait(&status);
	std::printf("status %d\n", WEXITSTATUS(status));
	return leaf(40);
}
