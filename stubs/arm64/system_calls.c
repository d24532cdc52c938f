// SPDX-License-Identifier: MIT
/* System calls in arm64 code: `svc #0`, with the number in x8. All are redirected, except those known
 * to be a different call. */
#include "system_calls.h"

#define SVC 0xd4000001u
#define NOP 0xd503201fu
#define FURTHEST 32 /* instructions before it to search for the number */

static u32 word_at(const u8 *at)
{
	return *(const u32 __attribute__((may_alias)) *)at;
}

static void put(u8 *to, u32 word)
{
	*(volatile u32 __attribute__((may_alias)) *)to = word;
}

/* Whether an instruction is position-independent (Arm ARM, "Loads and stores", "Branches"). */
static int is_movable(u32 word)
{
	return (word & 0x7c000000) != 0x14000000 && /* b, bl */
	       (word & 0xfe000000) != 0x54000000 && /* b.cond */
	       (word & 0x7c000000) != 0x34000000 && /* cbz, tbz */
	       (word & 0xfe000000) != 0xd6000000 && /* br, blr, ret */
	       (word & 0x1f000000) != 0x10000000 && /* adr, adrp */
	       (word & 0x3b000000) != 0x18000000 && /* ldr of a literal */
	       (word & 0xfe000000) != 0xd4000000 && /* svc, msr, hints */
	       (word & 0x3f000000) != 0x08000000;   /* exclusive */
}

/* The number of a system call, ~0 if unknown. */
static ulong number_of(const u8 *call, const u8 *start)
{
	const u8 *at;
	u32 n, word;

	for (at = call, n = 0; n < FURTHEST && at > start; n++) {
		at -= 4;
		word = word_at(at);
		if ((word & 0x7fe0001f) == 0x52800008) /* movz x8 */
			return word >> 5 & 0xffff;
		if ((word & 0x7fe0ffff) == 0x2a0003e8 || (word & 0xfffffc1f) == 0x93407c08 || word == SVC)
			break; /* mov x8, xN; sxtw x8, wN */
	}
	return ~0ul;
}

int lead_found(const u8 *start, const u8 *end, const u8 **at, struct lead *lead)
{
	const u8 *call;
	ulong number;

	for (call = (const u8 *)(((ulong)*at + 3) & -4ul); call + 4 <= end; call += 4) {
		if (word_at(call) != SVC)
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
	put(to, 0x14000000 | ((u32)((target - address) >> 2) & 0x3ffffff)); /* b */
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
	put(to + 4, 0xa9bf7bf0);  /* stp x16, x30, [sp, #-16]! */
	put(to + 8, 0x58000110);  /* ldr x16, . + 32 */
	put(to + 12, 0xd63f0200); /* blr x16 */
	put(to + 16, 0xb5000090); /* cbnz x16, . + 16 */
	put(to + 20, 0xa8c17bf0); /* ldp x16, x30, [sp], #16 */
	put(to + 24, SVC);
	if (!lead->whole)
		lead_jump(to + 24, address + 24, (ulong)lead->call);
	lead_jump(to + 28, address + 28, behind);
	put(to + 32, 0xa8c17bf0); /* ldp x16, x30, [sp], #16 */
	lead_jump(to + 36, address + 36, behind);
	address_put(to + 40, (ulong)ftrace_asked);
	address_put(to + 48, behind);
}

/* _dl_debug_state() is `ret`, perhaps after `bti c`. */
u32 lead_linker(u8 *to, const u8 *at)
{
	if (word_at(at) != 0xd65f03c0 && (word_at(at) != 0xd503245f || word_at(at + 4) != 0xd65f03c0))
		return 0;
	put(to, 0x58000050);     /* ldr x16, . + 8 */
	put(to + 4, 0xd61f0200); /* br x16 */
	address_put(to + 8, (ulong)ftrace_linked);
	return 16;
}

ulong lead_behind(ulong back)
{
	return *(const ulong *)(back + 32);
}
