// SPDX-License-Identifier: MIT
/* Calls of libraries, as many as CALLS of tests/tracer/test_library_calls.py says: of every kind of argument
 * and result, through callbacks, in tail calls, from other threads, left by longjmp, and of functions
 * that return twice or never. */
#include <complex.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static jmp_buf out;
static int compared;

NOINLINE static int compare(const void *a, const void *b)
{
	if (++compared == 4)
		longjmp(out, 5);
	return abs(*(const int *)a - 10) - abs(*(const int *)b - 10);
}

NOINLINE static int tail(const char *text)
{
	return strtol(text, NULL, 10);
}

static void *thread(void *text)
{
	char *copy = strdup(text);

	free(copy);
	return (void *)strlen(text);
}

static void last(void)
{
	printf("last\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	int numbers[] = {13, 11, 12, 15, 14}, status;
	char text[160];
	pthread_t id;
	void *result;
	pid_t child;
	ldiv_t parts = ldiv(1000003L * argc, 10);

	atexit(last);
	snprintf(text, sizeof(text), "%d %s %c %ld %d %d %d %.3f %.3f %.3f %.3f %Lf", argc, "two", '3', 4L,
		 5, 6, 7, 8.5, 9.25, 10.125, sqrt(argc + 1), 12.5L);
	puts(text);
	printf("%ld %ld %.6f %.6f\n", parts.quot, parts.rem, __real__ cexp(argc * I),
	       __imag__ cexp(argc * I));
	if (!setjmp(out))
		qsort(numbers, 5, sizeof(*numbers), compare);
	printf("%d %d %d %.3Lf\n", compared, tail("123"), tail("-4"), powl(1.5L, argc));
	for (int i = 0; i < 3; i++) {
		pthread_create(&id, NULL, thread, "thread");
		pthread_join(id, &result);
		printf("%ld\n", (long)result);
	}
	fflush(stdout);
	child = fork();
	if (!child)
		_exit(strlen(argv[0]) ? 7 : 8);
	waitpid(child, &status, 0);
	printf("%d\n", WEXITSTATUS(status));
	fflush(stdout);
	child = vfork();
	if (!child)
		_exit(9);
	waitpid(child, &status, 0);
	printf("%d\n", WEXITSTATUS(status));
	exit(WEXITSTATUS(status));
}
