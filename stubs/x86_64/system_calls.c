// SPDX-License-Identifier: MIT
/* System calls in x86-64 code. The code before `syscall` has to be decoded forwards, from the
 * instruction that loads the number:
 *
 *     mov eax, 13       b8 0d 00 00 00     five bytes, with no branch into them
 *     mov rax, 13       48 c7 c0 0d 00 00 00
 *     mov rax, rdi      48 89 f8           of syscall() itself, which moves all arguments
 *     mov rax, r9       4c 89 c8           after a `mov r9d, 13`
 *     mov rax, [rbp-8]  48 8b 45 f8        of functions like syscall()
 */
#include "system_calls.h"

#define FURTHEST 112 /* bytes before `syscall` to examine */
#define MOST 24      /* maximum instructions there */
#define SHUFFLED 4   /* ... and no fewer, where the number is an argument */
#define GIVEN 512    /* bytes before it in which the number may be loaded */
#define AROUND 0x10000 /* bytes: where to look for branches to it */

/* The length of an instruction that can be moved, 0 for any other: none of these branch. `apart`: the
 * offset of its displacement from the next instruction (rip), 0 for none.
 * Intel SDM volume 2, "Instruction Format" and appendix A. */
static u32 length(const u8 *at, u32 *apart)
{
	u32 n = 0, wide = 0, word = 0, immediate = 0, modrm = 1;
	u8 op;

	*apart = 0;
	for (; at[n] == 0x66 || at[n] == 0x64 || at[n] == 0xf2 || at[n] == 0xf3; n++)
		word |= at[n] == 0x66;
	if ((at[n] & 0xf0) == 0x40)
		wide = at[n++] & 8;
	op = at[n++];
	if (op == 0x0f) {
		op = at[n++];
		if ((op >= 0x70 && op <= 0x73) || op == 0xc6 || op == 0xba || op == 0xc2 || op == 0xc4 ||
		    op == 0xc5 || op == 0xa4 || op == 0xac)
			immediate = 1;
		else if (!(op <= 0x1f && op >= 0x10) && !(op >= 0x28 && op <= 0x2f) &&
			 !(op >= 0x40 && op <= 0x7f && op != 0x77) && !(op >= 0xb6 && op <= 0xbf) &&
			 !(op >= 0xd0 && op <= 0xfe) && !(op >= 0x90 && op <= 0x9f) && op != 0xaf)
			return 0;
	} else if (op < 0x40 && (op & 7) < 6) {
		modrm = (op & 7) < 4;
		immediate = modrm ? 0 : (op & 7) == 4 ? 1 : word ? 2 : 4;
	} else if (op >= 0x50 && op < 0x60) {
		modrm = 0; /* push, pop */
	} else if (op == 0x68 || op == 0x6a) {
		modrm = 0;
		immediate = op == 0x6a ? 1 : 4;
	} else if (op == 0x69 || op == 0x81 || op == 0xc7) {
		immediate = word ? 2 : 4;
	} else if (op == 0x6b || op == 0x80 || op == 0x83 || op == 0xc0 || op == 0xc1 || op == 0xc6) {
		immediate = 1;
	} else if (op == 0x90 || op == 0x98 || op == 0x99) {
		modrm = 0;
	} else if (op == 0xa8 || (op & 0xf8) == 0xb0) {
		modrm = 0;
		immediate = 1;
	} else if (op == 0xa9 || (op & 0xf8) == 0xb8) {
		modrm = 0;
		immediate = op != 0xa9 && wide ? 8 : word ? 2 : 4;
	} else if (op == 0xf6 || op == 0xf7) {
		immediate = at[n] & 0x30 ? 0 : op == 0xf6 ? 1 : word ? 2 : 4;
	} else if (op == 0xfe || op == 0xff) {
		if (at[n] & 0x30)
			return 0; /* inc and dec only */
	} else if (op != 0x63 && !(op >= 0x84 && op <= 0x8b) && op != 0x8d && !(op >= 0xd0 && op <= 0xd3)) {
		return 0;
	}
	if (modrm) {
		u8 mod = at[n] >> 6, rm = at[n] & 7;

		n++;
		if (mod != 3 && rm == 4) {
			if (mod == 0 && (at[n] & 7) == 5)
				n += 4;
			n++;
		} else if (mod == 0 && rm == 5) {
			*apart = n;
			n += 4;
		}
		n += mod == 1 ? 1 : mod == 2 ? 4 : 0;
	}
	return n + immediate;
}

static u32 word_at(const u8 *at)
{
	return at[0] | (u32)at[1] << 8 | (u32)at[2] << 16 | (u32)at[3] << 24;
}

/* The number of instructions from one place to another, and the size of the first ones that make room
 * for a jump; 0 if they do not end there. */
static u32 instructions(const u8 *from, const u8 *to, u32 *size)
{
	u32 count = 0, n, unused;

	for (*size = 0; from < to && count < MOST; from += n, count++) {
		n = length(from, &unused);
		if (!n)
			return 0;
		if (*size < LEAD_JUMP)
			*size += n;
	}
	return from == to ? count : 0;
}

/* The source register of `mov rax, reg`, -1 for any other instruction (Intel SDM volume 2, "MOV"). */
static int copied(const u8 *at)
{
	u32 rex = (at[0] & 0xf0) == 0x40 ? *at++ : 0;

	if (at[0] == 0x89 && (at[1] & 0xc7) == 0xc0 && !(rex & 1))
		return (int)((at[1] >> 3 & 7) | (rex & 4) << 1);
	if ((at[0] == 0x8b || (at[0] == 0x63 && rex & 8)) && (at[1] & 0xf8) == 0xc0 && !(rex & 4))
		return (int)((at[1] & 7) | (rex & 1) << 3);
	return -1;
}

/* Whether the last number loaded into a register is one we look for: mov r9d, 13. */
static int was_asked(u32 which, const u8 *at, const u8 *start)
{
	const u8 *from;

	for (from = at - 5; from > start && from + GIVEN >= at; from--)
		if (from[0] == (0xb8 | (which & 7)) &&
		    (which > 7 ? from[-1] == 0x41 : (from[-1] & 0xf1) != 0x41))
			return is_asked(word_at(from + 1));
	return 0;
}

/* Whether a branch goes into the middle of the instructions that a jump replaces. */
static int is_entered(const u8 *from, const u8 *start, const u8 *end)
{
	const u8 *low = from - start > AROUND ? from - AROUND : start;
	const u8 *high = end - from > AROUND ? from + AROUND : end, *at, *target;
	u32 size, starts = 0, n, unused;

	for (size = 0; size < LEAD_JUMP && (n = length(from + size, &unused)); size += n)
		starts |= size ? 1u << size : 0; /* bit n: one begins n bytes further on */
	for (at = low; at + 6 < high; at++) {
		if ((at[0] & 0xf0) == 0x70 || at[0] == 0xeb || (at[0] & 0xfc) == 0xe0) { /* rel8 */
			target = at + 2 + (signed char)at[1];
		} else if ((at[0] & 0xfe) == 0xe8 || (at[0] == 0x0f && (at[1] & 0xf0) == 0x80)) {
			n = at[0] == 0x0f ? 2 : 1;
			target = at + n + 4 + (int)word_at(at + n);
		} else {
			continue;
		}
		if ((ulong)(target - from) < LEAD_JUMP && starts >> (target - from) & 1)
			return 1;
	}
	return 0;
}

/* Whether an apparent prefix may be the last byte of the preceding instruction. */
static int ends_there(const u8 *at, const u8 *start)
{
	const u8 *from;
	u32 unused;

	if (at == start || (!((ulong)at % 16) && (at[-1] == 0x90 || at[-1] == 0xcc || at[-1] == 0xc3 ||
						 (!at[-1] && !at[-2] && !at[-3]))))
		return 0; /* a function begins here: ret, int3, NOPs */
	for (from = at - 1; from >= start && from + 14 > at; from--)
		if (length(from, &unused) == (u32)(at + 1 - from))
			return 1;
	return 0;
}

/* Whether an instruction gives a system call a number that is asked for, or may be.
 * -1: another; 2: it is an argument; 3: it comes from a register, or from where arguments are kept. */
static int numbers(const u8 *at, const u8 *start)
{
	u32 has_rex = (at[0] & 0xf0) == 0x40;
	int which;

	if (at[0] == 0xb8 && !(at > start && (at[-1] == 0x41 || at[-1] == 0x49))) /* not r8d */
		return is_asked(word_at(at + 1)) ? 1 : -1;
	if (at[0] == 0x48 && at[1] == 0xc7 && at[2] == 0xc0)
		return is_asked(word_at(at + 3)) ? 1 : -1;
	if (at[0] == 0x31 && at[1] == 0xc0 && !(at > start && (at[-1] & 0xf0) == 0x40))
		return -1; /* xor eax, eax */
	if (has_rex ? ends_there(at, start) : at > start && (at[-1] & 0xf0) == 0x40)
		return 0;
	which = copied(at);
	if (which > 0)
		return was_asked((u32)which, at, start) ? 3 : has_rex && (which == 6 || which == 7) ? 2 : 0;
	at += has_rex; /* mov rax, [rbp + n] or [rsp + n] */
	return at[0] == 0x8b && ((at[1] & 0x3f) == 5 || ((at[1] & 0x3f) == 4 && at[2] == 0x24)) &&
	       (at[1] & 0xc0) % 0xc0 && (!has_rex || at[-1] == 0x48) ? 3 : 0;
}

/* The next one from `*at` on. */
int lead_found(const u8 *start, const u8 *end, const u8 **at, struct lead *lead)
{
	const u8 *call, *from;
	u32 size, count;
	int known;

	for (call = *at; call + 1 < end; call++) {
		/* Most of eight bytes have neither of it: zero where a byte is 05. */
		while (call + 9 < end) {
			u64 word = *(const u64 __attribute__((aligned(1), may_alias)) *)(call + 1) ^
				   0x0505050505050505ull;

			if ((word - 0x0101010101010101ull) & ~word & 0x8080808080808080ull)
				break;
			call += 8;
		}
		if (call[0] != 0x0f || call[1] != 0x05)
			continue;
		for (from = call - 2; from >= start && from + FURTHEST >= call; from--) {
			known = numbers(from, start);
			count = known ? instructions(from, call, &size) : 0;
			if (count && known < 0)
				break;
			if (!count || (known == 2 && count < SHUFFLED) || size + 2 < LEAD_JUMP ||
			    (known > 1 && is_entered(from, start, end)))
				continue;
			lead->from = from;
			lead->call = call;
			lead->size = size;
			lead->whole = size < LEAD_JUMP;
			*at = call + 2;
			return 1;
		}
	}
	return 0;
}

static u8 *distance(u8 *to, ulong from, ulong target)
{
	u32 value = (u32)(target - from), i;

	for (i = 0; i < 4; i++, value >>= 8)
		*to++ = (u8)value;
	return to;
}

void lead_jump(u8 *to, ulong address, ulong target)
{
	*to = 0xe9; /* jmp rel32 */
	distance(to + 1, address + 5, target);
}

/*     what was displaced, and all up to the system call
 *     lea rsp, [rsp - 128]        48 8d 64 24 80
 *     call [rip + 20]             ff 15 14 00 00 00
 *     lea rsp, [rsp + 128]        48 8d a4 24 80 00 00 00
 *     jrcxz 1f                    e3 05
 *     jmp behind the call         e9 rel32
 * 1:  jmp the call                e9 rel32             (syscall, and behind it where that has no
 *     .quad ftrace_asked                                place of its own any more)
 */
void lead_stub(u8 *to, ulong address, const struct lead *lead)
{
	static const u8 code[] = {0x48, 0x8d, 0x64, 0x24, 0x80, 0xff, 0x15, 0x14, 0, 0, 0,
				  0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0, 0xe3, 5};
	const u8 *from = lead->from;
	u32 i, n, apart, value;
	u8 *at = to;
	ulong target = (ulong)ftrace_asked;

	for (; from < lead->call; from += n, at += n) {
		n = length(from, &apart);
		for (i = 0; i < n; i++)
			((volatile u8 *)at)[i] = from[i];
		if (apart) {
			value = word_at(from + apart) + (u32)((ulong)from - (address + (ulong)(at - to)));
			for (i = 0; i < 4; i++, value >>= 8)
				((volatile u8 *)at)[apart + i] = (u8)value;
		}
	}
	for (i = 0; i < sizeof(code); i++)
		*(volatile u8 *)at++ = ((volatile const u8 *)code)[i];
	lead_jump(at, address + (ulong)(at - to), (ulong)lead->call + 2);
	at += 5;
	if (lead->whole) { /* 0f 05; jmp rel8 to the jump before */
		static const u8 whole[] = {0x0f, 0x05, 0xeb, 0xf7, 0xcc};

		for (i = 0; i < sizeof(whole); i++)
			*(volatile u8 *)at++ = ((volatile const u8 *)whole)[i];
	} else {
		lead_jump(at, address + (ulong)(at - to), (ulong)lead->call);
		at += 5;
	}
	for (i = 0; i < 8; i++, target >>= 8)
		*(volatile u8 *)at++ = (u8)target;
}

/* _dl_debug_state() has one instruction, `ret`, and NOPs after it: jmp [rip]; .quad ftrace_linked */
u32 lead_linker(u8 *to, const u8 *at)
{
	static const u8 jump[] = {0xff, 0x25, 0, 0, 0, 0};
	ulong target = (ulong)ftrace_linked;
	u32 i, n, size;

	n = at[0] == 0xf3 && at[1] == 0x0f && at[2] == 0x1e && at[3] == 0xfa ? 4 : 0; /* endbr64 */
	if (at[n] != 0xc3)
		return 0;
	for (size = n + 1; size < LEAD_JUMP;) {
		u32 prefix = 0;

		while (at[size + prefix] == 0x66 || at[size + prefix] == 0x2e)
			prefix++;
		if (at[size + prefix] == 0x90 || at[size + prefix] == 0xcc)
			size += prefix + 1;
		else if (at[size + prefix] == 0x0f && at[size + prefix + 1] == 0x1f)
			size += 8; /* long enough */
		else
			return 0;
	}
	for (i = 0; i < sizeof(jump); i++)
		to[i] = ((volatile const u8 *)jump)[i];
	for (; i < sizeof(jump) + 8; i++, target >>= 8)
		((volatile u8 *)to)[i] = (u8)target;
	return i;
}

/* The instruction after a system call, by the return address in its stub. */
ulong lead_behind(ulong back)
{
	return back + 15 + (ulong)(long)(int)word_at((const u8 *)back + 11);
}
