// SPDX-License-Identifier: MIT
#include "elf.h"
#include "threads.h"
#include "text.h"
#include "unwound.h"

#define PT_DYNAMIC 2
#define DT_HASH 4
#define DT_STRTAB 5
#define DT_SYMTAB 6
#define CLOCK_MONOTONIC 1

struct symbol {
	u32 name, value, size;
	u8 info, other;
	u16 section;
};

struct timespec64 {
	s64 seconds;
	u32 nanoseconds, unused;
};

static int (*clock64)(int clock, struct timespec64 *now); /* 0: there is none */
static int (*clock32)(int clock, struct timespec_ *now);

/* Nanoseconds of CLOCK_MONOTONIC. */
u64 ticks(void)
{
	struct timespec64 wide;
	struct timespec_ now;

	if (likely(clock64) && likely(!clock64(CLOCK_MONOTONIC, &wide)))
		return (u64)wide.seconds * 1000000000u + wide.nanoseconds;
	if (clock32 && !clock32(CLOCK_MONOTONIC, &now))
		return (u64)now.seconds * 1000000000u + now.nanoseconds;
	return nanoseconds(CLOCK_MONOTONIC);
}

static int is_same(const char *one, const char *other)
{
	while (*one && *one == *other)
		one++, other++;
	return *one == *other;
}

/* The address of a function that the vDSO defines, 0: none. The kernel takes the names of those away that
 * do without a counter (vdso_nullpatch_one() of arch/arm/kernel/vdso.c). */
static ulong vdso_function(ulong bias, const struct symbol *symbol, u32 count, const char *names, const char *name)
{
	for (; count; count--, symbol++)
		if (symbol->name && symbol->section && is_same(names + symbol->name, name))
			return symbol->value + bias;
	return 0;
}

/* The vDSO's ELF header is at AT_SYSINFO_EHDR, 0: there is none. */
void clock_found(ulong vdso)
{
	const struct elf_header *header = (const struct elf_header *)vdso;
	const struct elf_segment *segment;
	const ulong *entry = 0;
	const struct symbol *symbols = 0;
	const char *names = 0;
	const u32 *hash = 0;
	ulong bias = 0;
	int i;

	if (!vdso)
		return;
	segment = (const struct elf_segment *)(vdso + header->phoff);
	for (i = header->phnum; i > 0; i--, segment++)
		if (segment->type == PT_LOAD)
			bias = vdso + segment->offset - segment->address;
		else if (segment->type == PT_DYNAMIC)
			entry = (const ulong *)(vdso + segment->offset);
	for (; entry && entry[0]; entry += 2)
		if (entry[0] == DT_HASH)
			hash = (const u32 *)(entry[1] + bias);
		else if (entry[0] == DT_STRTAB)
			names = (const char *)(entry[1] + bias);
		else if (entry[0] == DT_SYMTAB)
			symbols = (const struct symbol *)(entry[1] + bias);
	if (!hash || !names || !symbols)
		return;
	clock64 = (int (*)(int, struct timespec64 *))vdso_function(bias, symbols, hash[1], names,
								  "__vdso_clock_gettime64");
	clock32 = (int (*)(int, struct timespec_ *))vdso_function(bias, symbols, hash[1], names,
								"__vdso_clock_gettime");
}

/* Long division, bit by bit. */
u64 divide(u64 number, u64 by)
{
	u64 result = 0, rest = 0;
	int bit;

	for (bit = 63; bit >= 0; bit--) {
		rest = rest << 1 | (number >> bit & 1);
		if (rest >= by) {
			rest -= by;
			result |= 1ull << bit;
		}
	}
	return result;
}

/* What gcc calls for 32 bits, as ARMv7-A need not have udiv: Run-time ABI for the Arm Architecture, 4.3.1. The
 * quotient is in r0, the rest in r1. */
#define BUILT_IN __attribute__((visibility("hidden"), used))
u64 __aeabi_uidivmod(u32 number, u32 by);
u32 __aeabi_uidiv(u32 number, u32 by);

BUILT_IN u64 __aeabi_uidivmod(u32 number, u32 by)
{
	u32 result = 0, rest = 0;
	int bit;

	for (bit = 31; bit >= 0; bit--) {
		rest = rest << 1 | (number >> bit & 1);
		if (rest >= by) {
			rest -= by;
			result |= 1u << bit;
		}
	}
	return (u64)rest << 32 | result;
}

BUILT_IN u32 __aeabi_uidiv(u32 number, u32 by)
{
	return (u32)__aeabi_uidivmod(number, by);
}

#ifdef PROBES
/* Divisions of 64 bits, of histograms and filters (Run-time ABI, 4.2): the quotient is in r0 and r1, the rest in
 * r2 and r3. The fifth word of the functions' arguments is where that goes. */
u64 __udivmoddi4(u64 number, u64 by, u64 *rest);
s64 __divmoddi4(s64 number, s64 by, s64 *rest);

BUILT_IN u64 __udivmoddi4(u64 number, u64 by, u64 *rest)
{
	u64 result = divide(number, by);

	*rest = number - result * by;
	return result;
}

static u64 magnitude(s64 number)
{
	return number < 0 ? 0 - (u64)number : (u64)number;
}

BUILT_IN s64 __divmoddi4(s64 number, s64 by, s64 *rest)
{
	u64 result = divide(magnitude(number), magnitude(by));
	s64 wanted = (s64)((number < 0) != (by < 0) ? 0 - result : result);

	*rest = number - wanted * by;
	return wanted;
}

#define LONG_DIVISION(name, by)                                                                                 \
	void name(void);                                                                                        \
	BUILT_IN __attribute__((naked)) void name(void)                                                         \
	{                                                                                                       \
		__asm__("sub sp, sp, #16\n\tadd ip, sp, #8\n\tstr ip, [sp]\n\tstr lr, [sp, #4]\n\t"            \
			"bl " #by "\n\tldr lr, [sp, #4]\n\tldrd r2, r3, [sp, #8]\n\tadd sp, sp, #16\n\tbx lr"); \
	}
LONG_DIVISION(__aeabi_uldivmod, __udivmoddi4)
LONG_DIVISION(__aeabi_ldivmod, __divmoddi4)
#endif
