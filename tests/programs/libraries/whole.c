// SPDX-License-Identifier: MIT
/* A library that counts its own calls: by a resolver, before anything of it is initialized; in its
 * constructors and destructors; in threads, forked children and callbacks. */
#include "whole.h"
#include <stdlib.h>
#include <string.h>

static struct calls calls;
static const char *given;

#define CALLED(name) __atomic_fetch_add(&calls.name, 1, __ATOMIC_RELAXED)

int whole_leaf(int n)
{
	CALLED(leaf);
	return n + 1;
}

int whole_deep(int n)
{
	int sum = n ? whole_deep(n - 1) : 0;

	CALLED(deep);
	__asm__ volatile("" : "+r"(sum)); /* no loop of it */
	return sum + whole_leaf(n);
}

int whole_back(int n, int (*back)(int))
{
	int sum;

	CALLED(back);
	sum = back(n);
	__asm__ volatile("" : "+r"(sum)); /* no tail call */
	return sum;
}

__attribute__((noipa)) static int early(int n)
{
	return n * 3;
}

static int chosen(int n)
{
	CALLED(chosen);
	return early(n) - 2 * n;
}

static int (*resolved(void))(int)
{
	return early(14) == 42 ? chosen : 0;
}

#ifdef __GLIBC__ /* others have no IFUNCs */
int whole_chosen(int n) __attribute__((ifunc("resolved")));
#else
int whole_chosen(int n)
{
	return resolved()(n);
}
#endif

/* glibc's initializers have arguments. */
__attribute__((constructor)) static void whole_begin(int argc, char **argv, char **envp)
{
	(void)argc;
	(void)envp;
	CALLED(begin);
#ifdef __GLIBC__
	given = argv[0];
#endif
}

__attribute__((destructor)) static void whole_end(void)
{
	CALLED(end);
}

const char *whole_given(void)
{
	return given;
}

struct calls whole_calls(void)
{
	return calls;
}
