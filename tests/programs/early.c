// SPDX-License-Identifier: MIT
/* Code before main, and after it. */
#include <unistd.h>
#include "check.h"

static int resolved, before, order;
static char log_of[64];

static NOINLINE int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

/* No call of libc: it may not be relocated yet. */
static NOINLINE int count(int n) { return n ? count(n - 1) + 1 : 0; }

static int chosen_one(int n) { return n + 1; }
static int chosen_two(int n) { return n + 2; }

static NOINLINE int (*resolve(void))(int)
{
	return count(5) == 5 ? chosen_two : chosen_one;
}

#ifdef __linux__
int ifunc(int n) __attribute__((ifunc("resolve")));
#endif

static NOINLINE void note(char c) { log_of[order++] = c; }

static void preinit(int argc, char **argv, char **envp)
{
	(void)envp;
	before += argc > 0 && argv[0] && fib(6) == 8;
	note('p');
}

#ifndef NO_PREINIT
__attribute__((section(".preinit_array"), used)) static void (*const first)(int, char **, char **) = preinit;
#else
__attribute__((constructor(101))) static void instead(int c, char **v, char **e) { preinit(c, v, e); }
#endif

__attribute__((constructor(200))) static void second(void) { resolved = ifunc(fib(5)); note('2'); }
__attribute__((constructor(300))) static void third(void) { note('3'); }

static NOINLINE void say(const char *text)
{
	CHECK(write(1, text, strlen(text)) == (ssize_t)strlen(text));
}

__attribute__((destructor(200))) static void last(void) { say(fib(3) == 2 ? "last\n" : "?\n"); }
__attribute__((destructor(300))) static void almost(void) { say("almost\n"); }

static NOINLINE void leaving(void) { say(fib(4) == 3 ? "leaving\n" : "?\n"); }
static NOINLINE void leaving_first(void) { leaving(); atexit(leaving); }

int main(int argc, char **argv)
{
	CHECK(!atexit(leaving_first));
	CHECK(resolved == 7 && before == 1 && ifunc(1) == 3);
	printf("%s\n", log_of);
	fflush(stdout);
	if (is(argc, argv, "quick"))
		quick_exit(3);
	if (is(argc, argv, "exit"))
		exit(fib(6));
	return fib(7);
}
