// SPDX-License-Identifier: MIT
/* Runs a program and holds one of its threads while that makes room in its trace file.
 *
 *     holder TIMES MILLISECONDS PROGRAM ARGUMENT...
 *
 * The thread is the program's second one. It is stopped behind the madvise(2) by which a file grows, when it
 * has a chunk of that file and has not begun to use it; the other threads go on for so long.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <linux/ptrace.h>

static pid_t second_thread(pid_t pid)
{
	char path[64];
	pid_t found = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	while (!found) {
		DIR *tasks = opendir(path);
		struct dirent *task;

		while (tasks && (task = readdir(tasks)))
			if (atoi(task->d_name) && atoi(task->d_name) != pid)
				found = atoi(task->d_name);
		if (tasks)
			closedir(tasks);
	}
	return found;
}

int main(int argc, char **argv)
{
	int times = atoi(argv[1]), status, held = 0, grows = 0;
	pid_t pid = fork(), tid;

	(void)argc;
	if (!pid) {
		execv(argv[3], argv + 3);
		_exit(127);
	}
	tid = second_thread(pid);
	if (ptrace(PTRACE_SEIZE, tid, 0, PTRACE_O_TRACESYSGOOD) || ptrace(PTRACE_INTERRUPT, tid, 0, 0))
		return 126;
	while (waitpid(tid, &status, __WALL) == tid && WIFSTOPPED(status)) {
		struct __ptrace_syscall_info info;

		if (WSTOPSIG(status) == (SIGTRAP | 0x80) &&
		    ptrace(PTRACE_GET_SYSCALL_INFO, tid, sizeof(info), &info) > 0) {
			if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
				grows = info.entry.nr == SYS_madvise;
			} else if (grows) {
				usleep(1000 * atoi(argv[2]));
				grows = 0;
				held++;
			}
		}
		if (ptrace(held < times ? PTRACE_SYSCALL : PTRACE_DETACH, tid, 0, 0) || held == times)
			break;
	}
	fprintf(stderr, "held %d times\n", held);
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 125;
}
