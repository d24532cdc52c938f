// SPDX-License-Identifier: MIT
/* Works in many threads that begin and end, forks, and takes signals; the same result each time.
 *
 * `churning THREADS ROUNDS KIND` prints its process number, works until it has done ROUNDS and has
 * read a byte, and then prints what it counted. KIND: threads, vfork, spawn.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static atomic_long sum, handled, failed, interrupted, rounds;
static int wanted, ring[2], queue;
static const char *kind;
static char *const none[] = {0};

static void handle(int number) { int kept = errno; handled++; errno = kept; }

/* Numbers in all registers, and in those of the vector unit, across stops. */
static double mixed(unsigned seed) {
	double a = seed, b = 1, c = 2, d = 3;
	unsigned long h = seed;
	for (int i = 0; i < 2000; i++) {
		a = a * 0.5 + b * 0.3; b = b * 0.25 + c * 0.6; c = c * 0.5 + d * 0.4; d = d * 0.1 + i % 7;
		h = (h ^ i) * 0x100000001b3;
	}
	return a + b + c + d + (double)(h % 1000);
}
static void *brief(void *seed) { return (void *)(long)(mixed((long)seed) * 1000); }
static int child(char *name) {
	pid_t pid;
	int status = -1;
	if (strcmp(kind, "spawn") == 0) {
		char *words[] = {name, 0};
		if (posix_spawn(&pid, name, 0, 0, words, none)) return -1;
	} else if (strcmp(kind, "vfork") == 0) {
		if ((pid = vfork()) == 0) { execl(name, name, (char *)0); _exit(99); }
	} else if ((pid = fork()) == 0)
		_exit(0);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR) interrupted++;
	return status;
}
static void *works(void *number) {
	long n = (long)number;
	struct epoll_event event;
	struct timespec little = {0, 500000};
	for (int i = 0; i < wanted; i++) {
		pthread_t thread;
		void *result;
		sum += (long)(mixed(n * 1000 + i) * 1000);
		if (pthread_create(&thread, 0, brief, (void *)(n + i)) || pthread_join(thread, &result))
			failed++;
		else
			sum += (long)result;
		if (epoll_wait(queue, &event, 1, 1) != 0) {
			if (errno != EINTR) failed++;
			else interrupted++;
		}
		if (n % 16 == 0 && i % 8 == 0 && child("/bin/true") != 0) failed++;
		if (nanosleep(&little, 0) && errno != EINTR) failed++;
		rounds++;
	}
	return 0;
}
int main(int argc, char **argv) {
	int count = atoi(argv[1]);
	pthread_t threads[count];
	char byte;
	struct sigaction act = {.sa_handler = handle, .sa_flags = SA_RESTART};
	sigset_t rt;
	wanted = atoi(argv[2]);
	kind = argv[3];
	queue = epoll_create1(0);
	sigaction(SIGRTMIN, &act, 0);
	printf("ready %d\n", getpid());
	fflush(stdout);
	for (long i = 0; i < count; i++)
		if (pthread_create(threads + i, 0, works, (void *)i)) failed++;
	for (int i = 0; i < count; i++) pthread_join(threads[i], 0);
	while (read(0, &byte, 1) < 0 && errno == EINTR) {}
	printf("sum %ld rounds %ld failed %ld\n", sum, rounds, failed);
	printf("handled %ld\n", handled);
	fprintf(stderr, "interrupted %ld\n", interrupted);
	return failed != 0;
}
