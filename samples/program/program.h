/* SPDX-License-Identifier: MIT */
/* What the programs share. */
#ifndef SAMPLES_PROGRAM_H
#define SAMPLES_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

/* No site and no record, for either way of leaving sites. */
#define notrace __attribute__((no_instrument_function)) \
	__attribute__((patchable_function_entry(0, 0)))
/* Every function keeps its symbol, its site and its calls. */
#ifdef __clang__
#define own_symbol __attribute__((noinline, used))
#else
#define own_symbol __attribute__((noipa, used))
#endif

/* work.c: returns how many of its checks failed; *sum becomes a checksum of all results. */
unsigned int work(uint32_t *sum);

/* entry-<arch>.S: how often ftrace_caller was called. */
extern volatile unsigned long ftrace_calls __attribute__((visibility("hidden")));

/* say.c: one line on stdout; "calls: N" if SHOW_CALLS is set. */
void say(const char *label, unsigned long value, unsigned int base);
void say_calls(const char *label, unsigned long calls);

/* library.c, in the shared libraries: the library's own ftrace_calls. */
unsigned long library_calls(void);

#endif
