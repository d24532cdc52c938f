// SPDX-License-Identifier: MIT
/* opening HOW NAME TIMES: opens a library, calls what is in it, and closes it; says how often the
 * library's functions were called. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *name;
static int times, failed;
static volatile int ticks;

__attribute__((noinline)) void own(void)
{
	__asm__ volatile("" ::: "memory");
}

static int said(void *handle, int n)
{
	int (*entry)(int) = (int (*)(int))dlsym(handle, "entry");
	int *calls = dlsym(handle, "calls");
	int result = entry(n);

	printf("%d: %d calls\n", result, *calls);
	fflush(stdout);
	return *calls;
}

static void *opened(void *unused)
{
	void *handle;
	int i;

	for (i = 0; i < times; i++) {
		errno = 77;
		if (!(handle = dlopen(name, RTLD_NOW))) {
			puts(dlerror());
			exit(9);
		}
		own();
		said(handle, 3);
		dlclose(handle);
	}
	return 0;
}

static void on_alarm(int number)
{
	ticks++;
}

int main(int argc, char **argv)
{
	const char *how = argv[1];
	void *handle, *other;
	pthread_t thread[4];
	char byte;
	int i;

	name = argv[2];
	times = atoi(argv[3]);
	if (!strcmp(how, "once")) {
		opened(0);
	} else if (!strcmp(how, "thread")) {
		pthread_create(thread, 0, opened, 0);
		pthread_join(*thread, 0);
	} else if (!strcmp(how, "fork")) { /* a child has what its parent opened, and opens more */
		handle = dlopen(name, RTLD_NOW);
		said(handle, 1);
		if (!fork()) {
			said(handle, 2);
			name = argv[4];
			opened(0);
			return 0;
		}
		wait(0);
	} else if (!strcmp(how, "two")) { /* namespaces: the library is there twice */
		handle = dlopen(name, RTLD_NOW);
		other = dlmopen(LM_ID_NEWLM, name, RTLD_NOW);
		said(handle, 1);
		said(other, 2);
		said(handle, 3);
	} else if (!strcmp(how, "moves")) { /* to another address */
		opened(0);
		handle = dlopen(argv[4], RTLD_NOW);
		opened(0);
	} else if (!strcmp(how, "signals")) {
		struct sigaction action = {.sa_handler = on_alarm};

		sigaction(SIGALRM, &action, 0);
		ualarm(500, 500);
		opened(0);
		while (!ticks)
			;
		ualarm(0, 0);
	} else if (!strcmp(how, "gate")) { /* waits for the end of standard input */
		printf("ready %d\n", getpid());
		fflush(stdout);
		while (read(0, &byte, 1) > 0)
			;
		opened(0);
	} else if (!strcmp(how, "exec")) {
		execv(argv[4], argv + 4);
	}
	return 4;
}
