/* SPDX-License-Identifier: MIT */
/* What the programs share: each checks itself, prints what must not depend on how it was built, and
 * ends with 1 if a check failed. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline))

/* Not a function that is traced: a check must not change what it checks. */
#define CHECK(what)                                                                     \
	do {                                                                            \
		if (!(what)) {                                                          \
			printf("%s:%d: %s\n", __FILE_NAME__, __LINE__, #what);          \
			fflush(stdout);                                                 \
			_Exit(1);                                                       \
		}                                                                       \
	} while (0)

/* Keeps the compiler from knowing a value, and what it did to memory. */
#define UNKNOWN(value) __asm__ __volatile__("" : "+r"(value) : : "memory")

static inline int is(int argc, char **argv, const char *mode)
{
	return argc > 1 && !strcmp(argv[1], mode);
}

#endif
