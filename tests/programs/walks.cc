// SPDX-License-Identifier: MIT
/* Walks up its stack in every way, in several threads all the time, and checks what comes of it: until
 * its standard input ends, it says `ready`, then the number of errors.
 *
 * With -DLIBRARY: the library through whose functions it throws.
 *
 * walks step    waits for lines: at each of them a thread goes on, in the middle of a walk. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <atomic>
#include <stdexcept>
#include <string>
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <unistd.h>
#include <unwind.h>

#define TRACED extern "C" __attribute__((noinline))
enum { THREADS = 4, MOST = 64 };
typedef long called(long n);

TRACED long through_library(called *to, long n);

#ifdef LIBRARY
namespace {
struct Left {
	std::atomic<long> *at;
	~Left() { ++*at; }
};
std::atomic<long> left;
} // namespace
TRACED long library_leaf(long n) { return n + 2; }
TRACED long through_library(called *to, long n)
{
	Left here{&left};

	return library_leaf(to(n)) - 2;
}
TRACED long through_nothing(called *to, long n) noexcept
{
	try {
		return through_library(to, n);
	} catch (...) {
		return -1;
	}
}
#else
TRACED long through_nothing(called *to, long n) noexcept;

static std::atomic<bool> ending;
static std::atomic<long> errors;
static thread_local long undone;

static void same(const char *what, long got, long wanted)
{
	if (got != wanted && errors++ < 10)
		dprintf(2, "%s: %ld, not %ld\n", what, got, wanted);
}

TRACED long leaf(long n) { return n * 3 + 1; }

struct Guard {
	__attribute__((noinline)) ~Guard() { undone += leaf(0); }
};
TRACED long down(long n)
{
	Guard guard;

	if (!n)
		throw std::runtime_error("deep");
	if (n % 2)
		return through_library(down, n - 1) + leaf(n);
	return down(n - 1) + leaf(n);
}
TRACED long caught(long n)
{
	undone = 0;
	try {
		return down(n);
	} catch (const std::exception &error) {
		return undone + (long)strlen(error.what());
	}
}
TRACED long rethrown(long n)
{
	try {
		if (n)
			return rethrown(n - 1) + leaf(n);
		return down(3);
	} catch (...) {
		leaf(n);
		throw;
	}
}
TRACED long nested(long n)
{
	try {
		return down(n);
	} catch (const std::runtime_error &) {
		long inner = n ? nested(n - 1) : caught(2);

		try {
			throw std::string("inside");
		} catch (const std::string &text) {
			return inner + (long)text.size();
		}
	}
}
TRACED long nothing(long n) { return through_nothing(down, n); }

/* Who called: the functions of the program, by backtrace() and _Unwind_Backtrace(). */
struct Called {
	long count, function[MOST];

	void add(void *address)
	{
		Dl_info info;

		// What an unwinder is given for a replaced return is one less: still in the function.
		if (count < MOST && dladdr(address, &info) && info.dli_sname)
			function[count++] = (long)info.dli_saddr;
	}
};
static thread_local Called seen;
static _Unwind_Reason_Code each(struct _Unwind_Context *context, void *)
{
	seen.add((void *)_Unwind_GetIP(context));
	return _URC_NO_REASON;
}
TRACED long look(long by_backtrace)
{
	void *address[MOST];

	seen.count = 0;
	if (by_backtrace) {
		int count = backtrace(address, MOST);

		for (int i = 0; i < count; i++)
			seen.add(address[i]);
	} else {
		_Unwind_Backtrace(each, 0);
	}
	return seen.count;
}
TRACED long look_deep(long n, long how) { return n ? look_deep(n - 1, how) + leaf(0) : look(how) + leaf(0); }

/* Threads that are cancelled, and that end themselves, in the middle of calls. */
struct Ended {
	std::atomic<long> *at;
	__attribute__((noinline)) ~Ended() { *at += leaf(1); }
};
static void cleaned(void *at) { *(std::atomic<long> *)at += leaf(2); }
TRACED long waits_deep(std::atomic<long> *at, long n)
{
	Ended ended{at};

	if (n)
		return waits_deep(at, n - 1) + leaf(n);
	pthread_cleanup_push(cleaned, at);
	for (;;)
		usleep(1000);
	pthread_cleanup_pop(0);
	return 0;
}
TRACED long exits_deep(std::atomic<long> *at, long n)
{
	Ended ended{at};

	if (n)
		return exits_deep(at, n - 1) + leaf(n);
	pthread_exit((void *)77);
}
static void *cancelled(void *at) { return (void *)waits_deep((std::atomic<long> *)at, 4); }
static void *exiting(void *at) { return (void *)exits_deep((std::atomic<long> *)at, 4); }
static void ends()
{
	std::atomic<long> of_cancelled{0}, of_exiting{0};
	pthread_t one, other;
	void *got;

	pthread_create(&one, 0, cancelled, &of_cancelled);
	pthread_create(&other, 0, exiting, &of_exiting);
	usleep(2000);
	pthread_cancel(one);
	pthread_join(one, &got);
	same("cancelled", got == PTHREAD_CANCELED, 1);
	same("cleaned up", of_cancelled, 5 * 4 + 7);
	pthread_join(other, &got);
	same("exited", (long)got, 77);
	same("undone at exit", of_exiting, 5 * 4);
}

static Called before[2];
static void *worker(void *argument)
{
	for (long n = 0; !ending; n++) {
		same("caught", caught(5), 6 * 1 + 4);
		try {
			rethrown(4);
			same("rethrown", 0, 1);
		} catch (const std::exception &error) {
			same("rethrown", error.what()[0], 'd');
		}
		same("nested", nested(3), 4 * 6 + 3 + 4);
		same("nothing", nothing(3), -1);
		if (argument)
			ends();
		for (long how = 0; how < 2; how++) {
			same("looked", look_deep(6, how) >= 7, 1);
			same("seen", seen.count >= 7, 1);
			for (int i = 0; i < 7 && i < seen.count; i++)
				same("caller", seen.function[i], before[how].function[i]);
		}
		if (n % 16 == 0)
			usleep(500);
	}
	return 0;
}

/* In the middle of a walk: each waits for a line of standard input, and says where it is. */
static void step(const char *where)
{
	char line[16];

	printf("%s\n", where);
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return; // it is to end
}
struct Waiting {
	__attribute__((noinline)) ~Waiting() { leaf(1); step("clean-up"); leaf(1); }
};
TRACED long slow_throw(long n)
{
	if (n) {
		if (n == 2) {
			Waiting here;

			return slow_throw(n - 1) + leaf(n);
		}
		return slow_throw(n - 1) + leaf(n);
	}
	throw std::runtime_error("slow");
}
static _Unwind_Reason_Code slow_each(struct _Unwind_Context *context, void *count)
{
	if (++*(long *)count == 3)
		step("walk");
	seen.add((void *)_Unwind_GetIP(context));
	return _URC_NO_REASON;
}
TRACED long slow_look(long n)
{
	long count = 0;

	if (n)
		return slow_look(n - 1) + leaf(0) - 1;
	seen.count = 0;
	_Unwind_Backtrace(slow_each, &count);
	for (int i = 0; i < seen.count; i++)
		count = seen.function[i] == (long)slow_look ? i + 1 : count;
	return count;
}
TRACED long slow_catch(long n)
{
	try {
		return slow_throw(n);
	} catch (const std::runtime_error &error) {
		return (long)strlen(error.what());
	}
}

/* On a stack that still holds what a walk has left there. */
static __attribute__((noinline)) void rest(void)
{
	char room[16 << 10];

	__asm__ volatile("" : : "r"(room) : "memory");
	step("between");
	__asm__ volatile("" : : "r"(room) : "memory");
}

int main(int argc, char **)
{
	pthread_t thread[THREADS];
	char line[16];

	for (long how = 0; how < 2; how++) {
		look_deep(6, how);
		before[how] = seen;
	}
	if (argc > 1) {
		step("ready");
		same("slow exception", slow_catch(4), 4);
		rest();
		same("slow walk", slow_look(4), 5);
		rest();
	} else {
		puts("ready");
		fflush(stdout);
		for (long i = 0; i < THREADS; i++)
			pthread_create(&thread[i], 0, worker, (void *)(i % 2));
		while (fgets(line, sizeof(line), stdin))
			;
		ending = true;
		for (pthread_t one : thread)
			pthread_join(one, 0);
	}
	printf("%ld errors\n", errors.load());
	return errors != 0;
}
#endif
