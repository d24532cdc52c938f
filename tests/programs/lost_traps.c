// SPDX-License-Identifier: MIT
/* Threads with a hardware breakpoint each, set by their parent, who counts: no part of ftpatch is in it.
 * Exit code 2: the program was killed by a SIGTRAP that no breakpoint accounts for. */
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 200
#define ROUNDS 20

static volatile long cell;
static volatile int go;
static int tids[THREADS];

static void *waits(void *number)
{
	int i;

	tids[(long)number] = (int)syscall(SYS_gettid);
	while (!go)
		usleep(500);
	for (i = 0; i < ROUNDS; i++)
		cell = cell + i;
	return 0;
}

static int child(int told, int heard)
{
	pthread_t threads[THREADS];
	char word;
	long i;

	for (i = 0; i < THREADS; i++)
		if (pthread_create(threads + i, 0, waits, (void *)i))
			return 1;
	for (i = 0; i < THREADS; i++)
		while (!((volatile int *)tids)[i])
			usleep(500);
	if (write(told, tids, sizeof(tids)) != sizeof(tids) || read(heard, &word, 1) != 1)
		return 1;
	go = 1;
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], 0);
	return 0;
}

int main(void)
{
	struct perf_event_attr wanted = {
		.type = PERF_TYPE_BREAKPOINT,
		.size = sizeof(wanted),
		.sample_period = 1,
		.exclude_kernel = 1,
		.exclude_hv = 1,
		.bp_type = HW_BREAKPOINT_RW,
		.bp_addr = (unsigned long)&cell,
		.bp_len = HW_BREAKPOINT_LEN_8,
	};
	int from[2], to[2], status = 0, i;
	pid_t pid;

	if (pipe(from) || pipe(to))
		return 1;
	pid = fork();
	if (!pid)
		return child(from[1], to[0]);
	if (read(from[0], tids, sizeof(tids)) != sizeof(tids))
		return 1;
	for (i = 0; i < THREADS; i++)
		if (syscall(SYS_perf_event_open, &wanted, tids[i], -1, -1, 0) < 0) {
			kill(pid, SIGKILL);
			return 1;
		}
	if (write(to[1], "", 1) != 1 || waitpid(pid, &status, 0) != pid)
		return 1;
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGTRAP ? 2 : 0;
}
