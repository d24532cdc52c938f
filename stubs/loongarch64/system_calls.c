// SPDX-License-Identifier: MIT
/* System calls in loongarch64 code: `syscall 0`, with the number in a7. All are redirected, except those
 * known to be a different call. t0 to t8 are free around one: the kernel changes them. */
#include "system_calls.h"

#define SYSCALL 0x002b0000u
#define NOP 0x03400000u
#define RET 0x4c000020u
#define A7 11
#define FURTHEST 32 /* instructions before it to search for the number */

static u32 word_at(const u8 *at)
{
	return *(const u32 __attribute__((may_alias)) *)at;
}

static void put(u8 *to, u32 word)
{
	*(volatile u32 __attribute__((may_alias)) *)to = word;
}

/* Whether an instruction is position-independent, and stands by itself (ftpatch/arch/loongarch64/move.py). */
static int is_movable(u32 word)
{
	return (word < 0x40000000 || word >= 0x70000000) && /* beqz to bgeu, jirl */
	       (word & 0xf8000000) != 0x18000000 &&         /* pcaddi to pcaddu18i */
	       (word & 0xfffe0000) != 0x002a0000 &&         /* break, syscall */
	       (word & 0xfc000000) != 0x20000000 &&         /* ll, sc */
	       (word & 0xffff0000) != 0x38570000;           /* sc.q, llacq, screl */
}

/* The number of a system call, ~0 if unknown. */
static ulong number_of(const u8 *call, const u8 *start)
{
	const u8 *at;
	u32 n, word, opcode;

	for (at = call, n = 0; n < FURTHEST && at > start; n++) {
		at -= 4;
		word = word_at(at);
		opcode = word & 0xffc003e0;
		if (word == SYSCALL)
			break;
		if ((word & 31) != A7)
			continue;
		if (opcode == 0x03800000 || opcode == 0x02800000 || opcode == 0x02c00000)
			return word >> 10 & 0xfff; /* ori, addi.w, addi.d $a7, $zero */
		break;
	}
	return ~0ul;
}

int lead_found(const u8 *start, const u8 *end, const u8 **at, struct lead *lead)
{
	const u8 *call;
	ulong number;

	for (call = (const u8 *)(((ulong)*at + 3) & -4ul); call + 4 <= end; call += 4) {
		if (word_at(call) != SYSCALL)
			continue;
		number = number_of(call, start);
		if (number != ~0ul && !is_asked(number))
			continue;
		/* A call that blocks must do so in place, where unwinders know it. */
		lead->whole = number == SYS_rt_sigaction || number == SYS_rt_sigprocmask || call == start ||
			      !is_movable(word_at(call - 4));
		lead->from = lead->whole ? call : call - 4;
		lead->call = call;
		lead->size = 4;
		*at = call + 4;
		return 1;
	}
	return 0;
}

void lead_jump(u8 *to, ulong address, ulong target)
{
	u32 distance = (u32)((target - address) >> 2);

	put(to, 0x50000000 | (distance & 0xffff) << 10 | (distance >> 16 & 0x3ff)); /* b */
}

static void address_put(u8 *to, ulong address)
{
	put(to, (u32)address);
	put(to + 4, (u32)(address >> 32));
}

void lead_stub(u8 *to, ulong address, const struct lead *lead)
{
	ulong behind = (ulong)lead->call + 4;

	put(to, lead->whole ? NOP : word_at(lead->from));
	put(to + 4, 0x180000ec);  /* pcaddi $t0, (32 - 4) / 4 */
	put(to + 8, 0x28c0018d);  /* ld.d $t1, $t0, 0 */
	put(to + 12, 0x4c0001ac); /* jirl $t0, $t1, 0 */
	put(to + 16, 0x440009a0); /* bnez $t1, 8 */
	put(to + 20, SYSCALL);
	if (!lead->whole)
		lead_jump(to + 20, address + 20, (ulong)lead->call);
	lead_jump(to + 24, address + 24, behind);
	put(to + 28, NOP);
	address_put(to + 32, (ulong)ftrace_asked);
	address_put(to + 40, behind);
}

/* _dl_debug_state() is `ret`. */
u32 lead_linker(u8 *to, const u8 *at)
{
	if (word_at(at) != RET)
		return 0;
	put(to, 0x1800008c);     /* pcaddi $t0, 16 / 4 */
	put(to + 4, 0x28c0018c); /* ld.d $t0, $t0, 0 */
	put(to + 8, 0x4c000180); /* jr $t0 */
	put(to + 12, NOP);
	address_put(to + 16, (ulong)ftrace_linked);
	return 24;
}

ulong lead_behind(ulong back)
{
	return *(const ulong *)(back + 24);
}
