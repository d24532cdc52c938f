// SPDX-License-Identifier: MIT
/* Does everything at once that makes it hard to change a process: many threads that come and go,
 * signals, children, jumps, exceptions, coroutines, waiting calls. It checks what it computes, until
 * its standard input ends, and says what came out: always the same.
 *
 * busy WORKERS SIGNALS-A-SECOND [killed]
 *
 * With `killed`, who stops it may be killed at once: a waiting call may end with EINTR then. */
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <atomic>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define TRACED extern "C" __attribute__((noinline))
enum { STACK = 64 << 10, PARKED = 3 };
extern char **environ;

static std::atomic<bool> ending;
static bool killed;
static std::atomic<long> errors, handled, made[8];
static const char *named[8] = {"rounds", "children", "vforks", "spawns", "threads", "waits", "jumps out", "sent"};

static void wrong(const char *what, long got, long wanted)
{
	if (errors++ < 10)
		dprintf(2, "%s: %ld, not %ld (errno %d)\n", what, got, wanted, errno);
}
static void waited(const char *what, long got, long wanted)
{
	if (got != wanted && !(killed && errno == EINTR))
		wrong(what, got, wanted);
}
static void same(const char *what, long got, long wanted)
{
	if (got != wanted)
		wrong(what, got, wanted);
}

TRACED long leaf(long n) { return n * 3 + 1; }
TRACED long fibonacci(long n) { return n < 2 ? leaf(n) : fibonacci(n - 1) + fibonacci(n - 2); }
TRACED double mixed(double a, long b, double c) { return a * (double)leaf(b) + c; }
TRACED long many(long a, long b, long c, long d, long e, long f, long g, long h)
{
	return leaf(a) + b * 2 + c * 3 + d * 4 + e * 5 + f * 6 + g * 7 + h * 8;
}
TRACED long tail(long n) { return leaf(n + 1); }

TRACED long jump_deep(jmp_buf *to, long n)
{
	if (!n)
		longjmp(*to, 5);
	return jump_deep(to, n - 1) + leaf(n);
}
TRACED long jumps(long n)
{
	jmp_buf here;
	volatile long sum = n;
	int came = setjmp(here);

	if (!came)
		sum = jump_deep(&here, n);
	return sum + came;
}

#ifdef __cpp_exceptions
TRACED long throw_deep(long n)
{
	struct guard { long *at; ~guard() { *at += leaf(1); } };
	static thread_local long undone;
	guard g{&undone};

	if (!n)
		throw undone;
	return throw_deep(n - 1) + leaf(n);
}
TRACED long throws(long n)
{
	try {
		return throw_deep(n);
	} catch (long) {
		return n * 7;
	}
}
#else
TRACED long throws(long n) { return n * 7; }
#endif

/* A coroutine that waits in the middle of calls. */
struct coroutine {
	ucontext_t own, caller;
	char *stack;
	long value;
};
TRACED long yield_deep(coroutine *c, long n)
{
	if (!n) {
		c->value++;
		swapcontext(&c->own, &c->caller);
		return 1;
	}
	return yield_deep(c, n - 1) + leaf(n);
}
static void runs(unsigned low, unsigned high)
{
	coroutine *c = (coroutine *)(((unsigned long)high << 32) | low);

	for (;;) {
		long sum = yield_deep(c, 5);

		same("coroutine", sum, 1 + 4 + 7 + 10 + 13 + 16);
	}
}
static void begins(coroutine *c)
{
	c->stack = (char *)mmap(0, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	c->value = 0;
	getcontext(&c->own);
	c->own.uc_stack.ss_sp = c->stack;
	c->own.uc_stack.ss_size = STACK;
	c->own.uc_link = 0;
	makecontext(&c->own, (void (*)())runs, 2, (unsigned)(unsigned long)c, (unsigned)((unsigned long)c >> 32));
}

/* Signals: on a stack of their own, on the interrupted one, and one that does not return. */
static thread_local sigjmp_buf out;
static thread_local volatile sig_atomic_t may_jump;
static void on_signal(int number)
{
	int before = errno;

	same("handler", fibonacci(4), 14);
	handled++;
	errno = before;
	if (number == SIGHUP && may_jump) {
		may_jump = 0;
		siglongjmp(out, 9);
	}
}
static void handlers(void)
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_handler = on_signal;
	action.sa_flags = SA_RESTART | SA_ONSTACK;
	sigaction(SIGUSR1, &action, 0);
	action.sa_flags = SA_RESTART;
	sigaction(SIGUSR2, &action, 0);
	sigaction(SIGHUP, &action, 0);
}
static void mask(int how, int number = 0)
{
	sigset_t set;

	sigfillset(&set);
	if (number) {
		sigemptyset(&set);
		sigaddset(&set, number);
	}
	pthread_sigmask(how, &set, 0);
}

TRACED long one_round(long n)
{
	long sum = fibonacci(8 + n % 3), waited = 0;

	errno = 77;
	sum += (long)mixed(1.5, n % 5, 0.25) + many(1, 2, 3, 4, 5, 6, 7, 8) + tail(n % 7);
	same("errno", errno, 77);
	sum += jumps(4 + n % 3) + throws(3 + n % 3);
	if (sigsetjmp(out, 1) == 0) {
		may_jump = 1;
		for (int i = 0; i < 20; i++)
			waited += leaf(i), usleep(200);
		may_jump = 0;
	} else {
		made[6]++;
		waited = 590;
	}
	may_jump = 0;
	return sum + waited;
}
static long result(long n)
{
	static const long f[] = {1, 4};
	long a = f[0], b = f[1], goes = 8 + n % 3;

	for (long i = 2; i <= goes; i++) {
		long next = a + b;

		a = b;
		b = next;
	}
	return b + (long)(1.5 * (double)(n % 5 * 3 + 1) + 0.25) + (4 + 4 + 9 + 16 + 25 + 36 + 49 + 64) +
	       ((n % 7 + 1) * 3 + 1) + (4 + n % 3 + 5) + (3 + n % 3) * 7 + 590;
}

static void *worker(void *argument)
{
	long id = (long)argument;
	coroutine parked[PARKED];
	stack_t apart;

	apart.ss_sp = malloc(STACK);
	apart.ss_size = STACK;
	apart.ss_flags = 0;
	sigaltstack(&apart, 0);
	for (coroutine &c : parked)
		begins(&c);
	mask(SIG_UNBLOCK);
	for (long n = id; !ending; n++) {
		same("round", one_round(n), result(n));
		coroutine *c = &parked[n % PARKED];
		long before = c->value;

		mask(SIG_BLOCK, SIGHUP);
		swapcontext(&c->caller, &c->own);
		mask(SIG_UNBLOCK, SIGHUP);
		same("yields", c->value, before + 1);
		made[0]++;
		usleep(20000 + (useconds_t)(id * 977 % 20000));
	}
	mask(SIG_BLOCK);
	return 0;
}
static void *passing(void *argument)
{
	mask(SIG_BLOCK);
	return (void *)(fibonacci(7) + (long)argument);
}
static void *threads(void *)
{
	for (long n = 0; !ending; n++) {
		pthread_t one[4];
		void *got;

		for (long i = 0; i < 4; i++)
			pthread_create(&one[i], 0, passing, (void *)(n + i));
		for (long i = 0; i < 4; i++) {
			pthread_join(one[i], &got);
			same("thread", (long)got, n + i + 60);
			made[4]++;
		}
		usleep(3000);
	}
	return 0;
}
static void ended(const char *what, pid_t child, int wanted)
{
	int status = 0;

	if (child < 0 || waitpid(child, &status, 0) != child)
		wrong(what, child, 0);
	else if (status != wanted << 8)
		wrong(what, status, wanted << 8);
}
static void *forks(void *)
{
	for (long n = 0; !ending; n++) {
		pid_t child = fork();

		if (!child) {
			long sum = 0;

			for (int i = 0; i < 5 + n % 20; i++) {
				sum += fibonacci(6) + throws(2) + jumps(3);
				usleep(1000);
			}
			_exit(sum == (5 + n % 20) * (37 + 14 + 8) ? 21 : 1);
		}
		ended("child", child, 21);
		made[1]++;
	}
	return 0;
}
static void *spawns(void *)
{
	for (long n = 0; !ending; n++) {
		char name[] = "/bin/true", *words[] = {name, 0};
		pid_t child = 0;

		if (n % 2) {
			volatile long got = 0;

			child = vfork();
			if (!child) {
				got = fibonacci(5);
				_exit(got == 23 ? 22 : 1);
			}
			ended("vfork", child, 22);
			made[2]++;
		} else {
			same("spawn", posix_spawn(&child, name, 0, 0, words, environ), 0);
			ended("spawn", child, 0);
			made[3]++;
		}
		usleep(2000);
	}
	return 0;
}
/* Calls that wait, where no signal is handled: none may be cut short. */
static void *waits(void *argument)
{
	int polled = epoll_create1(0), pair[2];
	struct timeval limit = {0, 30000};
	struct epoll_event event;
	char byte;

	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	while (!ending) {
		struct timespec rest = {0, 30000000};
		sigset_t none;

		leaf(1);
		switch ((long)argument) {
		case 0: waited("epoll_wait", epoll_wait(polled, &event, 1, 30), 0); break;
		case 1:
			sigemptyset(&none);
			sigaddset(&none, SIGWINCH);
			waited("sigtimedwait", sigtimedwait(&none, 0, &rest) == -1 ? errno : 0, EAGAIN);
			break;
		case 2: waited("recv", recv(pair[0], &byte, 1, 0) == -1 ? errno : 0, EAGAIN); break;
		case 3: same("nanosleep", nanosleep(&rest, 0), 0); break;
		case 4: same("poll", poll(0, 0, 30), 0); break;
		}
		made[5]++;
	}
	return 0;
}
static pthread_t *workers;
static long count, rate;
static void *sends(void *)
{
	static const int numbers[] = {SIGUSR1, SIGUSR2, SIGHUP};

	for (unsigned long n = 1; rate && !ending; n++) {
		usleep((useconds_t)(1000000 / rate));
		pthread_kill(workers[n * 7919 % (unsigned long)count], numbers[n % 3]);
		made[7]++;
	}
	return 0;
}

int main(int argc, char **argv)
{
	pthread_t other[16];
	int others = 0;
	char byte;

	count = argc > 1 ? atol(argv[1]) : 4;
	rate = argc > 2 ? atol(argv[2]) : 100;
	killed = argc > 3;
	workers = (pthread_t *)calloc((size_t)count, sizeof(*workers));
	mask(SIG_BLOCK);
	handlers();
	for (long i = 0; i < count; i++)
		pthread_create(&workers[i], 0, worker, (void *)i);
	for (void *(*run)(void *) : {threads, forks, spawns, sends})
		pthread_create(&other[others++], 0, run, 0);
	for (long i = 0; i < 5; i++)
		pthread_create(&other[others++], 0, waits, (void *)i);
	dprintf(1, "ready\n");
	while (read(0, &byte, 1) != 0)
		;
	ending = true;
	while (others)
		pthread_join(other[--others], 0);
	for (long i = 0; i < count; i++)
		pthread_join(workers[i], 0);
	for (int i = 0; i < 8; i++)
		dprintf(2, "%s %ld\n", named[i], made[i].load());
	dprintf(1, "%ld errors, sum %ld\n", errors.load(), one_round(11));
	return errors != 0;
}
