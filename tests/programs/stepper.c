// SPDX-License-Identifier: MIT
/* Runs a program and sends it a signal at every instruction between two of its breakpoints.
 *
 *     stepper TIMES STEP PROGRAM ARGUMENT...
 *
 * A thread of the program comes to a breakpoint, does what it does, comes to another, and it or the
 * next one begins anew, as long as it finds 1 in its first register behind the second. Some rounds are
 * stepped through. In each of the others SIGUSR1 comes at one instruction of the latest of these: at
 * the first one, then STEP instructions later, and so on. Each is repeated TIMES times; but for the
 * first time, SIGUSR2 comes by chance at some instruction of a round with a signal. The processor stops
 * it there; memory of the program is not touched.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 10000, AFRESH = 256 }; /* instructions of a round; rounds until one is stepped through */
enum { TURNS = 16 };                /* of a loop, in which each instruction is taken */

struct point { unsigned long ip; long nth; };
static struct point *first, *second, path[MOST], handlers[MOST];
static long points, handled;
static pid_t program;

static unsigned long *at(size_t offset) { return (unsigned long *)offset; }
#define REGISTER(name) at(offsetof(struct user, regs.name))
#define DEBUG(number) at(offsetof(struct user, u_debugreg[number]))

/* A stop of `pid`, or of any: its number, 0 for an end. Ends with the program. */
static pid_t stopped(pid_t pid, int *status)
{
	pid_t which;

	while ((which = waitpid(pid, status, __WALL)) < 0)
		if (errno != EINTR)
			exit(125);
	if (WIFSIGNALED(*status)) {
		fprintf(stderr, "signal %d ends %d", WTERMSIG(*status), which);
		if (first)
			fprintf(stderr, ": SIGUSR1 at %#lx.%ld", first->ip, first->nth);
		if (second)
			fprintf(stderr, ", SIGUSR2 at %#lx.%ld", second->ip, second->nth);
		fputs("\n", stderr);
		exit(128 + WTERMSIG(*status));
	}
	if (which == program && WIFEXITED(*status))
		exit(WEXITSTATUS(*status));
	return WIFSTOPPED(*status) ? which : 0;
}

static int code_of(pid_t pid, int status)
{
	siginfo_t info;

	if (WSTOPSIG(status) != SIGTRAP || status >> 16 || ptrace(PTRACE_GETSIGINFO, pid, 0, &info))
		return 0;
	return info.si_code;
}

static int at_breakpoint(pid_t pid, int status)
{
	return code_of(pid, status) == SI_KERNEL;
}

/* What is to be sent on. */
static int own(int status)
{
	return WSTOPSIG(status) == SIGTRAP || WSTOPSIG(status) == SIGSTOP ? 0 : WSTOPSIG(status);
}

/* Step up to a breakpoint, the first time with a signal; how many instructions there were. `whole`: 0 if
 * there are too many to step through all of them. */
static long recorded(struct point *to, pid_t pid, int sent, int *whole)
{
	long n = 0, i, steps;
	int status;

	*whole = 1;
	for (steps = 0; steps < MOST; steps++) {
		to[n].ip = ptrace(PTRACE_PEEKUSER, pid, REGISTER(rip), 0);
		to[n].nth = 0;
		for (i = n; i-- && !to[n].nth;)
			if (to[i].ip == to[n].ip)
				to[n].nth = to[i].nth + 1;
		if (ptrace(PTRACE_SINGLESTEP, pid, 0, sent) || !stopped(pid, &status) ||
		    at_breakpoint(pid, status))
			return n;
		sent = own(status);
		n += to[n].nth < TURNS;
	}
	*whole = 0;
	return n;
}

/* Goes on to there, first with a signal; 0 if a breakpoint, or the thread's end, comes before. */
static int reached(const struct point *point, pid_t pid, int sent)
{
	long left = point->nth;
	int status, hit;

	ptrace(PTRACE_POKEUSER, pid, DEBUG(0), point->ip);
	if (ptrace(PTRACE_POKEUSER, pid, DEBUG(7), 1)) {
		perror("no breakpoint of the processor");
		exit(125);
	}
	do {
		if (ptrace(PTRACE_CONT, pid, 0, sent) || !stopped(pid, &status))
			return 0;
		sent = own(status);
		hit = code_of(pid, status) == TRAP_HWBKPT;
	} while (!at_breakpoint(pid, status) && (!hit || left--));
	ptrace(PTRACE_POKEUSER, pid, DEBUG(7), 0);
	return hit;
}

/* 0 if the breakpoint at the round's end came. */
static int stepped(pid_t pid, long place, int twice)
{
	int status;

	first = &path[place];
	second = twice ? &handlers[random() % handled] : 0;
	if (!reached(first, pid, 0))
		return 0;
	if (second) {
		if (!reached(second, pid, SIGUSR1))
			return 0;
		ptrace(PTRACE_SINGLESTEP, pid, 0, SIGUSR2);
	} else {
		ptrace(PTRACE_SINGLESTEP, pid, 0, SIGUSR1);
	}
	return stopped(pid, &status) && !at_breakpoint(pid, status);
}

int main(int argc, char **argv)
{
	long times = atol(argv[1]), step = atol(argv[2]), round = 0, done = 0;
	int status, whole, inside = 0;
	pid_t pid;

	(void)argc;
	srandom(1);
	program = fork();
	if (!program) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		execv(argv[3], argv + 3);
		_exit(127);
	}
	stopped(program, &status);
	ptrace(PTRACE_SETOPTIONS, program, 0,
	       PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_EXITKILL);
	for (ptrace(PTRACE_CONT, program, 0, 0); (pid = stopped(-1, &status), 1);) {
		if (!pid)
			continue;
		if (at_breakpoint(pid, status) && (inside = !inside)) {
			first = second = 0;
			if (round % AFRESH == 0) {
				points = recorded(path, pid, 0, &whole);
				inside = !whole;
			} else if (round % AFRESH == 1) {
				reached(first = &path[points / 2], pid, 0);
				handled = recorded(handlers, pid, SIGUSR1, &whole);
				inside = !whole;
			} else {
				inside = stepped(pid, done / times * step, done % times != 0);
				done++;
			}
			round++;
		}
		if (at_breakpoint(pid, status) && !inside)
			ptrace(PTRACE_POKEUSER, pid, REGISTER(rax), done / times * step < points);
		ptrace(PTRACE_CONT, pid, 0, own(status));
	}
}
