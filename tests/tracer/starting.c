// SPDX-License-Identifier: MIT
/* starting WAY PROGRAM ARG...: counts its calls of work(), and starts PROGRAM in some way. Before
 * it ends or execs, it appends "PID CALLS" to LOG. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEFT __attribute__((patchable_function_entry(0, 0), no_instrument_function))

extern char **environ;
static int calls;
static volatile int children;

__attribute__((noinline)) void work(void)
{
	__asm__ volatile("" ::: "memory");
	calls++;
}

#ifdef ONLY
__attribute__((noinline)) void only(void)
{
}
#endif

#ifdef MORE
__asm__(".skip " MORE);
#endif

LEFT static void told(void)
{
	char text[64];
	int fd = open(LOG, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);

	if (write(fd, text, snprintf(text, sizeof(text), "%d %d\n", getpid(), calls)) < 0)
		_exit(99);
	close(fd);
	fflush(stdout);
}

LEFT static int ended(pid_t child)
{
	int status;

	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return 97;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

LEFT static void *start(void *words)
{
	char **argv = words;

	work();
	told();
	execv(argv[0], argv);
	_exit(98);
}

LEFT static void on_child(int number)
{
	children++;
}

LEFT static void on_signal(int number)
{
	dprintf(1, "signal %d\n", number);
	_exit(3);
}

/* The state of this process that exec keeps. */
LEFT static void state(void)
{
	char line[256];
	FILE *file = fopen("/proc/self/status", "re");
	int fd;

	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, "Sig", 3) || !strncmp(line, "ShdPnd", 6) || !strncmp(line, "Threads", 7))
			if (strncmp(line, "SigQ", 4))
				fputs(line, stdout);
	fclose(file);
	for (fd = 0; fd < 100; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			printf("fd %d\n", fd);
}

/* Let some system call fail with EPERM, -1: none. */
LEFT static void filter(int call)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {4, code};

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(96);
}

LEFT int main(int argc, char **argv)
{
	const char *way = argc > 1 ? argv[1] : "";
	char **words = argv + 2, *none[] = {0};
	int result = 0, status = 0, i;
	struct epoll_event event;
	pthread_t thread;
	sigset_t set;
	pid_t child;

	for (i = 0; i < 3; i++)
		work();
	if (!strcmp(way, "fork")) {
		if (!(child = fork())) {
			calls = 0;
			start(words);
		}
		result = ended(child);
	} else if (!strcmp(way, "vfork")) {
		if (!(child = vfork())) {
			execv(words[0], words);
			_exit(98);
		}
		result = ended(child);
	} else if (!strcmp(way, "spawn")) {
		result = posix_spawn(&child, words[0], 0, 0, words, environ) ? 95 : ended(child);
	} else if (!strcmp(way, "empty")) { /* without any environment */
		if (!(child = vfork())) {
			execve(words[0], words, none);
			_exit(98);
		}
		result = ended(child);
	} else if (!strcmp(way, "exec")) {
		start(words);
	} else if (!strcmp(way, "thread")) {
		pthread_create(&thread, 0, start, words);
		pause();
	} else if (!strcmp(way, "system")) {
		result = WEXITSTATUS(system(words[0]));
	} else if (!strcmp(way, "many")) { /* N at a time */
		int n = atoi(*words++), codes = 0;

		for (i = 0; i < n; i++)
			if (!vfork()) {
				execv(words[0], words);
				_exit(98);
			}
		while (wait(&status) > 0)
			codes += WEXITSTATUS(status);
		printf("codes %d\n", codes);
	} else if (!strcmp(way, "children")) { /* SIGCHLD of each */
		signal(SIGCHLD, on_child);
		for (i = 0; i < 5; i++)
			if (!(child = vfork())) {
				execv(words[0], words);
				_exit(98);
			} else
				result = ended(child);
		printf("children %d\n", children);
	} else if (!strcmp(way, "blocked")) { /* and pending across exec */
		sigemptyset(&set);
		sigaddset(&set, SIGUSR1);
		sigaddset(&set, SIGTERM);
		sigprocmask(SIG_BLOCK, &set, 0);
		raise(SIGUSR1);
		start(words);
	} else if (!strcmp(way, "state")) {
		state();
	} else if (!strcmp(way, "stop")) { /* and wait until that has been seen */
		sigemptyset(&set);
		sigaddset(&set, SIGUSR1);
		sigprocmask(SIG_BLOCK, &set, 0);
		raise(SIGSTOP);
		puts("goes on");
		sigwait(&set, &status);
		result = 4;
	} else if (!strcmp(way, "stops")) { /* who waits for a child sees it stop and go on */
		if (!(child = vfork())) {
			execv(words[0], words);
			_exit(98);
		}
		waitpid(child, &status, WUNTRACED);
		printf("stopped %d %d\n", WIFSTOPPED(status), WSTOPSIG(status));
		kill(child, SIGCONT);
		waitpid(child, &status, WCONTINUED);
		printf("continued %d\n", WIFCONTINUED(status));
		kill(child, SIGUSR1);
		result = ended(child);
	} else if (!strcmp(way, "ignores")) { /* SIGCHLD, in a call that a signal ends */
		int fd = epoll_create1(0);

		if (!(child = fork())) {
			usleep(50000);
			_exit(0);
		}
		result = epoll_wait(fd, &event, 1, 400);
		printf("epoll %d %d\n", result, result < 0 ? errno : 0);
		result = ended(child);
	} else if (!strcmp(way, "waits")) { /* for a signal */
		signal(SIGINT, on_signal);
		signal(SIGTERM, on_signal);
		dprintf(1, "ready %d\n", getpid());
		for (;;)
			pause();
	} else if (!strcmp(way, "gate")) { /* for the end of standard input */
		dprintf(1, "ready %d\n", getpid());
		while (read(0, &status, 1) > 0)
			;
		start(words);
	} else if (!strcmp(way, "killed")) {
		told();
		raise(SIGKILL);
	} else if (!strcmp(way, "filter")) {
		filter(atoi(words[0]));
		start(words + 1);
	} else if (!strcmp(way, "user")) { /* that of a setuid program */
		if (setuid((uid_t)atoi(words[0])))
			result = 94;
		start(words + 1);
	} else if (*way) {
		result = atoi(way);
	}
	printf("%s %d %d\n", way, result, (int)geteuid());
	told();
	return result;
}
