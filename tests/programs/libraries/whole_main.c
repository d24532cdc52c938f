// SPDX-License-Identifier: MIT
/* Calls a library from several threads, and prints how often: by which its trace is judged. With an
 * argument it is opened, by that name, when the threads are there, and closed while they use it. */
#include "whole.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS 50

static __typeof__(whole_leaf) *leaf;
static __typeof__(whole_deep) *deep;
static __typeof__(whole_back) *back;
static __typeof__(whole_chosen) *chosen;
static __typeof__(whole_calls) *calls;
static pthread_barrier_t opened;

static int again(int n)
{
	return n > 1 ? back(n - 1, again) : deep(2);
}

static void *work(void *sum)
{
	pthread_barrier_wait(&opened);
	for (int i = 0; i < ROUNDS; i++)
		*(int *)sum += back(3, again) + chosen(i) + leaf(i);
	return NULL;
}

static void told(const char *who)
{
	struct calls n = calls();

	printf("%s %d %d %d %d %d\n", who, n.leaf, n.deep, n.back, n.chosen, n.begin);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	void *library = NULL;
	pthread_t threads[THREADS];
	int sums[THREADS] = {0}, sum = 0, status;
	pid_t child;

	pthread_barrier_init(&opened, NULL, THREADS + 1);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, &sums[i]);
#ifdef OPENS
	library = dlopen(argv[1], RTLD_NOW);
	if (!library) {
		puts(dlerror());
		return 1;
	}
#define FIND(name) name = (__typeof__(name))dlsym(library, "whole_" #name)
	FIND(leaf), FIND(deep), FIND(back), FIND(chosen), FIND(calls);
#else
	leaf = whole_leaf, deep = whole_deep, back = whole_back, chosen = whole_chosen;
	calls = whole_calls;
	if (argc > 1)
		printf("%d\n", whole_given() == argv[0]);
#endif
	pthread_barrier_wait(&opened);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		sum += sums[i];
	}
	printf("%d\n", sum);
	told("parent");
	child = fork();
	if (!child) {
		deep(4);
		told("child");
		exit(3);
	}
	waitpid(child, &status, 0);
	printf("%d\n", WEXITSTATUS(status));
	if (library)
		dlclose(library);
	return 7;
}
