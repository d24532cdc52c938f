// SPDX-License-Identifier: MIT
/* A library that throws through its callers, and catches what they throw. */
#include "shared.h"
#include <stdexcept>

struct Marked {
	int *at;
	~Marked() { *at += 1; }
};

static int unwound;

int leaf(int n)
{
	return n + 1;
}

int thrower(int n)
{
	Marked marked{&unwound};
	if (n > 2)
		throw std::runtime_error("thrown");
	return leaf(n);
}

int through(int n, int (*back)(int))
{
	Marked marked{&unwound};
	int sum = back(n);
	return sum + leaf(n);
}

int catcher(int n, int (*back)(int))
{
	try {
		return back(n);
	} catch (const std::exception &) {
		return leaf(100);
	}
}

int was_started()
{
	return unwound;
}

int count(int n)
{
	static thread_local int counter;
	counter += n;
	n = n > 0 ? count(n - 1) : counter;
	__asm__ volatile("" : "+r"(n)); // no loop of it
	return n + 1;
}
