// SPDX-License-Identifier: MIT
/* Who called: by backtrace() and by _Unwind_Backtrace(), from calls, handlers and coroutines. */
#define _GNU_SOURCE
#include <execinfo.h>
#include <signal.h>
#include <stdint.h>
#include <ucontext.h>
#include <unwind.h>
#include "check.h"

/* Where functions lie, in the order of their addresses: the linker's, not to be relied on. */
static void (*volatile keep)(void);
static struct { const char *name; uintptr_t start; } known[8];
static char found[4096];
static int by_backtrace;
static ucontext_t here, there;

static void note(uintptr_t address)
{
	const char *name = 0;
	uintptr_t best = 4096; /* functions are shorter */

	for (int i = 0; i < 8; i++)
		if (known[i].name && address >= known[i].start && address - known[i].start < best) {
			best = address - known[i].start;
			name = known[i].name;
		}
	if (name && strlen(found) + strlen(name) + 2 < sizeof(found))
		strcat(strcat(found, name), " ");
}

static _Unwind_Reason_Code each(struct _Unwind_Context *context, void *unused)
{
	(void)unused;
	note(_Unwind_GetIP(context));
	return _URC_NO_REASON;
}

static NOINLINE void look(void)
{
	void *address[256];

	if (by_backtrace) {
		int count = backtrace(address, 256);

		for (int i = 0; i < count; i++)
			note((uintptr_t)address[i]);
	} else {
		_Unwind_Backtrace(each, 0);
	}
}

static NOINLINE long one(long n) { look(); return n + 1; }
static NOINLINE long two(long n) { return n ? two(n - 1) + 1 : one(n) + 1; }
static NOINLINE long three(long n) { return two(n) * 3; }
static NOINLINE void handler(int signal) { (void)signal; three(1); keep = 0; }
static NOINLINE long four(long n) { raise(SIGUSR1); return n + 1; }
static NOINLINE void body(void) { three(2); swapcontext(&there, &here); three(1); keep = 0; }
static NOINLINE long five(long n)
{
	long value = swapcontext(&here, &there) + n;

	value += three(1);
	swapcontext(&here, &there);
	return value;
}

int main(void)
{
	static char stack[64 << 10];

#define KNOWN(i, f) known[i].name = #f, known[i].start = (uintptr_t)f
	KNOWN(0, one); KNOWN(1, two); KNOWN(2, three); KNOWN(3, handler);
	KNOWN(4, four); KNOWN(5, five); KNOWN(6, body); KNOWN(7, main);
	signal(SIGUSR1, handler);
	for (by_backtrace = 0; by_backtrace < 2; by_backtrace++) {
		found[0] = 0;
		three(5);
#if !defined(__powerpc64__) && !defined(__loongarch__)
		/* qemu-user has no vdso for ppc64le, and without its unwind information libgcc takes what an
		 * earlier call left on the stack for return addresses (fallback_backtrace()); on loongarch64
		 * it reads from null where it goes through a signal's frame */
		four(1);
#endif
		getcontext(&there);
		there.uc_stack.ss_sp = stack;
		there.uc_stack.ss_size = sizeof(stack);
		there.uc_link = &here;
		makecontext(&there, body, 0);
		five(1);
		printf("%s\n", found);
	}
	return 0;
}
