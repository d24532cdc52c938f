// SPDX-License-Identifier: MIT
/* Programs that give up system calls, and their threads and children. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"

static sem_t ready, go;

static NOINLINE long fib(long n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

static NOINLINE int status_of(pid_t child)
{
	int status;

	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* Nothing but these system calls, `also` among them; the rest is the end. */
static NOINLINE void only(unsigned also)
{
#define ALLOW(n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, n, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(SYS_write), ALLOW(SYS_exit_group), ALLOW(SYS_futex), ALLOW(also),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(*code), code};

	CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK(!syscall(SYS_seccomp, 1, SECCOMP_FILTER_FLAG_TSYNC, &program)); /* of all threads */
}

static NOINLINE void say(const char *text)
{
	if (fib(7) == 13 && write(1, text, strlen(text)) < 0)
		_exit(1);
}

static NOINLINE void *waiting(void *text)
{
	sem_post(&ready);
	sem_wait(&go);
	say(text);
	syscall(SYS_exit_group, 0);
	return 0;
}

/* The first calls of a thread come when nothing is allowed any more. */
static NOINLINE int filtered(void)
{
	pthread_t thread;

	CHECK(!sem_init(&ready, 0, 0) && !sem_init(&go, 0, 0));
	CHECK(!pthread_create(&thread, 0, waiting, "filtered\n") && !sem_wait(&ready));
	only(SYS_write);
	fib(3);
	sem_post(&go);
	for (;;)
		fib(9);
}

/* In a child whose calls come before and after; the child alone, then. */
static NOINLINE int strict(int before)
{
	pid_t child = fork();

	if (child)
		return status_of(child);
	if (before)
		fib(3);
	prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
	say("strict\n");
	syscall(SYS_exit, fib(6));
	return 0;
}

/* A filter that lets fork; it holds for the child, too. */
static NOINLINE int forking(void)
{
	pid_t child;
	int ends[2];
	char byte;

	CHECK(!pipe(ends));
	child = fork();
	if (!child) {
		close(ends[0]);
		only(SYS_clone);
		child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
		if (!child)
			say("child of a child\n");
		syscall(SYS_exit_group, 3);
	}
	close(ends[1]); /* both hold the other end, and let go at their end */
	CHECK(status_of(child) == 3 && !read(ends[0], &byte, 1));
	return 0;
}

static void own(int signal)
{
	(void)signal;
	say("own\n");
	_exit(9);
}

/* What a fault, or its signal, comes to. */
static NOINLINE int faults(void)
{
	pid_t child = fork();

	if (!child)
		*(volatile int *)0 = 1;
	printf("%d\n", status_of(child));
	fflush(stdout);
	child = fork();
	if (!child)
		raise(SIGSEGV);
	printf("%d\n", status_of(child));
	fflush(stdout);
	signal(SIGSEGV, own);
	*(volatile int *)0 = 1;
	return 0;
}

int main(int argc, char **argv)
{
	fib(4);
	if (is(argc, argv, "filtered"))
		return filtered();
	if (is(argc, argv, "strict") || is(argc, argv, "strict-first"))
		return strict(argv[1][6] == 0);
	if (is(argc, argv, "forking"))
		return forking();
	if (is(argc, argv, "faults"))
		return faults();
	return (int)fib(8);
}
