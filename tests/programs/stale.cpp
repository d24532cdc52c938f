// SPDX-License-Identifier: MIT
// A stack that one thread's coroutine abandoned is used by another's: what is remembered of the first
// must not be taken for the second.
#include <pthread.h>
#include <semaphore.h>
#include <ucontext.h>
#include "check.h"

namespace {

enum { STACK = 256 << 10 };
ucontext_t own, back;
sem_t begun, end;
char *stack;
long result;
bool throws;

NOINLINE void pass() { swapcontext(&own, &back); }
NOINLINE void resume() { swapcontext(&back, &own); }

// Two of the same shape: their frames have the same size.
NOINLINE long abandoned(long n)
{
	if (n)
		return abandoned(n - 1) + 1;
	pass();
	return 1;
}

NOINLINE long finished(long n)
{
	if (n)
		return finished(n - 1) + 1000;
	pass();
	if (throws)
		throw 7L;
	return 1000;
}

NOINLINE void first_body() { result = abandoned(9); }
NOINLINE void second_body()
{
	try {
		result = finished(9);
	} catch (long value) {
		result = value;
	}
	pass();
}

NOINLINE void begin(void (*body)())
{
	getcontext(&own);
	own.uc_stack.ss_sp = stack;
	own.uc_stack.ss_size = STACK;
	makecontext(&own, body, 0);
	resume();
}

NOINLINE void *abandons(void *)
{
	begin(first_body);
	sem_post(&begun);
	sem_wait(&end);
	return nullptr;
}

NOINLINE void *finishes(void *) { resume(); return nullptr; }

} // namespace

int main(int argc, char **argv)
{
	pthread_t waiting, other;

	stack = static_cast<char *>(malloc(STACK));
	throws = is(argc, argv, "throw");
	sem_init(&begun, 0, 0);
	sem_init(&end, 0, 0);
	begin(second_body); // so that this thread is known before the others
	resume();
	CHECK(!pthread_create(&waiting, nullptr, abandons, nullptr));
	sem_wait(&begun);
	begin(second_body);
	if (is(argc, argv, "moved"))
		CHECK(!pthread_create(&other, nullptr, finishes, nullptr) && !pthread_join(other, nullptr));
	else
		resume();
	sem_post(&end);
	pthread_join(waiting, nullptr);
	printf("%ld\n", result);
	return 0;
}
