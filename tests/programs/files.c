// SPDX-License-Identifier: MIT
/* What programs do to the place of their trace: titles, daemons, forks, privileges, limits. */
#define _GNU_SOURCE
#ifdef MAY_BE_SANDBOXED
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BEFORE_GATE = 100 }; /* rounds */
extern char **environ;

__attribute__((noipa)) int work(int n) { return 2 * n; }

static void calls(int n)
{
	while (n-- > 0)
		work(n);
}

/* As setproctitle() writes over all that execve() put there. */
static void title(char **argv)
{
	char **at, *end = argv[0];

	for (at = argv; *at; at++)
		end = *at + strlen(*at) + 1;
	for (at = environ; *at; at++)
		end = *at + strlen(*at) + 1;
	memset(argv[0], 'x', (size_t)(end - argv[0]));
}

/* Children, one after the other, that make `n` calls each. 0: each ended as it should. */
static int children(int count, int n, unsigned user)
{
	int status, bad = 0;

	while (count-- > 0) {
		pid_t child = fork();

		if (!child) {
			if (user && (setgid(user) || setuid(user)))
				_exit(2);
			calls(n);
			exit(0);
		}
		if (child < 0 || waitpid(child, &status, 0) != child || status)
			bad++;
	}
	return bad;
}

/* Where GATE is set: when something has been recorded, tell so by the file GATE.reached, and wait for
 * GATE.open. */
static void gate(void)
{
	const char *place = getenv("GATE");
	char name[4096];
	FILE *told;
	int left = 600000;

	if (!place)
		return;
	snprintf(name, sizeof(name), "%s.reached", place);
	told = fopen(name, "w");
	if (told)
		fclose(told);
	snprintf(name, sizeof(name), "%s.open", place);
	while (access(name, F_OK) && left--)
		usleep(1000);
}

static void *working(void *file)
{
	struct timespec pause = {0, 1000000};
	FILE *out;
	int i;

	for (i = 0; i < 1500; i++) {
		if (i == BEFORE_GATE)
			gate();
		calls(40);
		nanosleep(&pause, 0);
	}
	out = fopen(file, "w");
	fputs("worked to its end\n", out);
	fclose(out);
	_exit(0);
}

static int slow(int times, int n)
{
	int i;

	for (i = 0; i < times; i++) {
		if (i == BEFORE_GATE)
			gate();
		calls(n);
		usleep(1000);
	}
	return 0;
}

static void *slowly(void *times_and_calls)
{
	int *two = times_and_calls;

	slow(two[0], two[1]);
	return 0;
}

static int threads(int times, int n)
{
	pthread_t thread[4];
	int i, two[] = {times, n};

	for (i = 0; i < 4; i++)
		pthread_create(&thread[i], 0, slowly, two);
	for (i = 0; i < 4; i++)
		pthread_join(thread[i], 0);
	return 0;
}

static void bus(int signal)
{
	_exit(signal == SIGBUS ? 9 : 8);
}

/* A store behind the end of a file of its own. */
static int sigbus(int handled)
{
	char name[] = "/tmp/ftpatch.XXXXXX", *at;
	int fd = mkstemp(name);

	unlink(name);
	work(1);
	if (handled)
		signal(SIGBUS, bus);
	at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	*at = 1;
	return 1;
}

#ifdef MAY_BE_SANDBOXED
/* Nothing but the end is allowed any more: all else is the end, too. */
static int sandbox(int n)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(*code), code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return 1;
	calls(n);
	_exit(5);
}
#endif

#ifdef MAY_BE_SANDBOXED
/* Sockets are the end from here on, files are not. */
static int no_socket(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(*code), code};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}
#endif

/* A daemon whose first thread ends before the others. */
static int daemon_(char *file)
{
	pthread_t thread;

	if (fork())
		return 0;
	setsid();
	calls(1);
	if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr) ||
	    pthread_create(&thread, 0, working, file))
		_exit(1);
	pthread_exit(0);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	int a = argc > 2 ? atoi(argv[2]) : 0, b = argc > 3 ? atoi(argv[3]) : 0;

	if (!strcmp(mode, "title")) {
		calls(1);
		title(argv);
		return chdir("/") || children(2, 3, 0);
	}
	if (!strcmp(mode, "daemon"))
		return daemon_(argv[2]);
	if (!strcmp(mode, "fork"))
		return children(a, b, 0);
	if (!strcmp(mode, "setuid")) {
		calls(1);
		return children(a, b, 65534);
	}
	if (!strcmp(mode, "slow")) /* for so many milliseconds */
		return slow(a, b);
	if (!strcmp(mode, "threads"))
		return threads(a, b);
	if (!strcmp(mode, "sigbus"))
		return sigbus(a);
	if (!strcmp(mode, "rmdir")) {
		calls(1);
		return rmdir(argv[2]);
	}
	if (!strcmp(mode, "calls"))
		calls(a);
#ifdef MAY_BE_SANDBOXED
	if (!strcmp(mode, "sandbox"))
		return sandbox(a);
	if (!strcmp(mode, "no-socket"))
		return no_socket() || children(a, b, 0);
#endif
	return 0;
}
