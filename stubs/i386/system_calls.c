// SPDX-License-Identifier: MIT
/* System calls in i386 code, of two forms:
 *
 *     int $0x80         cd 80
 *     call *%gs:0x10    65 ff 15 10 00 00 00     the vdso's, where libc keeps its address
 *
 * The code before it has to be decoded forwards, from the instruction that loads the number:
 *
 *     mov eax, 174      b8 ae 00 00 00     five bytes, with no branch into them
 *     push 126; pop eax 6a 7e 58           where size counts
 *     mov eax, edx      89 d0              after a `mov edx, 174`
 *     mov eax, [esp+4]  8b 44 24 04        of syscall() itself, and functions like it; [ebp+n] too
 *     push ebx ...      53 57 55 8b 1f     of glibc's __libc_do_syscall(), which makes all calls of six
 *                                          arguments: edi points to three of them
 */
#include "system_calls.h"

#define FURTHEST 112 /* bytes before the call to examine */
#define MOST 24      /* maximum instructions there */
#define GIVEN 512    /* bytes before it in which the number may be loaded */
#define AROUND 0x10000 /* bytes: where to look for branches to it */
#define CALL_MOST 7  /* bytes of the longer form: system_calls.S */

/* Bytes of the system call at `at`, 0 for none. */
static u32 call_size(const u8 *at, const u8 *end)
{
	static const u8 vdso[CALL_MOST] = {0x65, 0xff, 0x15, 0x10, 0, 0, 0};
	u32 i;

	if (at + 1 < end && at[0] == 0xcd && at[1] == 0x80)
		return 2;
	for (i = 0; i < CALL_MOST && at + i < end && at[i] == ((volatile const u8 *)vdso)[i]; i++)
		;
	return i == CALL_MOST ? i : 0;
}

/* The length of an instruction that can be moved as it is, 0 for any other: none of these branch.
 * Intel SDM volume 2, "Instruction Format" and appendix A. */
static u32 length(const u8 *at)
{
	u32 n = 0, word = 0, immediate = 0, modrm = 1;
	u8 op;

	for (; at[n] == 0x66 || at[n] == 0x64 || at[n] == 0x65 || at[n] == 0xf2 || at[n] == 0xf3; n++)
		word |= at[n] == 0x66;
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
	} else if (op >= 0x40 && op < 0x60) {
		modrm = 0; /* inc, dec, push, pop */
	} else if (op == 0x68 || op == 0x6a) {
		modrm = 0;
		immediate = op == 0x6a ? 1 : word ? 2 : 4;
	} else if (op == 0x69 || op == 0x81 || op == 0xc7) {
		immediate = word ? 2 : 4;
	} else if (op == 0x6b || op == 0x80 || op == 0x83 || op == 0xc0 || op == 0xc1 || op == 0xc6) {
		immediate = 1;
	} else if (op >= 0x90 && op < 0x9a) {
		modrm = 0; /* nop, xchg with eax, cwde, cdq */
	} else if (op >= 0xa0 && op < 0xa4) {
		modrm = 0; /* mov between eax and an address */
		immediate = 4;
	} else if (op == 0xa8 || (op & 0xf8) == 0xb0) {
		modrm = 0;
		immediate = 1;
	} else if (op == 0xa9 || (op & 0xf8) == 0xb8) {
		modrm = 0;
		immediate = word ? 2 : 4;
	} else if (op == 0xf6 || op == 0xf7) {
		immediate = at[n] & 0x30 ? 0 : op == 0xf6 ? 1 : word ? 2 : 4;
	} else if (op == 0xfe || op == 0xff) {
		if (at[n] & 0x30 && (at[n] & 0x38) != 0x30)
			return 0; /* inc, dec and push only */
	} else if (!(op >= 0x84 && op <= 0x8b) && op != 0x8d && op != 0x8f && !(op >= 0xd0 && op <= 0xd3)) {
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
	u32 count = 0, n;

	for (*size = 0; from < to && count < MOST; from += n, count++) {
		n = length(from);
		if (!n)
			return 0;
		if (*size < LEAD_JUMP)
			*size += n;
	}
	return from == to ? count : 0;
}

/* The source register of `mov eax, reg`, -1 for any other instruction (Intel SDM volume 2, "MOV"). */
static int copied(const u8 *at)
{
	if (at[0] == 0x89 && (at[1] & 0xc7) == 0xc0)
		return at[1] >> 3 & 7;
	if (at[0] == 0x8b && (at[1] & 0xf8) == 0xc0)
		return at[1] & 7;
	return -1;
}

/* Whether the last number loaded into a register is one we look for: mov edx, 174. */
static int was_asked(u32 which, const u8 *at, const u8 *start)
{
	const u8 *from;

	for (from = at - 5; from >= start && from + GIVEN >= at; from--)
		if (from[0] == (0xb8 | which))
			return is_asked(word_at(from + 1));
	return 0;
}

/* Whether a branch goes into the middle of the instructions that a jump replaces. */
static int is_entered(const u8 *from, const u8 *start, const u8 *end)
{
	const u8 *low = from - start > AROUND ? from - AROUND : start;
	const u8 *high = end - from > AROUND ? from + AROUND : end, *at, *target;
	u32 size, starts = 0, n;

	for (size = 0; size < LEAD_JUMP && (n = length(from + size)); size += n)
		starts |= size ? 1u << size : 0; /* bit n: one begins n bytes further on */
	if (size < LEAD_JUMP)
		starts |= 1u << size; /* the call itself */
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

/* push ebx; push edi; push ebp; mov ebx, [edi]; mov ebp, [edi+8]; mov edi, [edi+4] (glibc,
 * sysdeps/unix/sysv/linux/i386/libc-do-syscall.S): the number is its caller's. */
static int is_six(const u8 *at)
{
	static const u8 six[] = {0x53, 0x57, 0x55, 0x8b, 0x1f, 0x8b, 0x6f, 8, 0x8b, 0x7f, 4};
	u32 i;

	for (i = 0; i < sizeof(six) && at[i] == ((volatile const u8 *)six)[i]; i++)
		;
	return i == sizeof(six);
}

/* Whether an instruction gives a system call a number that is asked for, or may be.
 * -1: another; 2: it does so with the next; 3: it comes from a register, or from where arguments are
 * kept, or is the caller's. */
static int numbers(const u8 *at, const u8 *start)
{
	int which;

	if (at[0] == 0xb8)
		return is_asked(word_at(at + 1)) ? 1 : -1;
	if (at[0] == 0x6a && at[2] == 0x58)
		return is_asked(at[1]) ? 2 : -1;
	if ((at[0] == 0x31 || at[0] == 0x33) && at[1] == 0xc0)
		return -1; /* xor eax, eax */
	if (is_six(at))
		return 3;
	which = copied(at);
	if (which > 0)
		return was_asked((u32)which, at, start) ? 3 : 0;
	return at[0] == 0x8b && ((at[1] & 0x3f) == 5 || ((at[1] & 0x3f) == 4 && at[2] == 0x24)) &&
			       (at[1] & 0xc0) % 0xc0 ? 3 : 0;
}

/* The next one from `*at` on. */
int lead_found(const u8 *start, const u8 *end, const u8 **at, struct lead *lead)
{
	const u8 *call, *from;
	u32 size, count, own;
	int known;

	for (call = *at; call + 1 < end; call++) {
		own = call[0] == 0xcd || call[0] == 0x65 ? call_size(call, end) : 0;
		if (!own)
			continue;
		for (from = call - 2; from >= start && from + FURTHEST >= call; from--) {
			known = numbers(from, start);
			count = known ? instructions(from, call, &size) : 0;
			if (count && known < 0)
				break;
			if (!count || size + own < LEAD_JUMP || (known > 1 && is_entered(from, start, end)))
				continue;
			lead->from = from;
			lead->call = call;
			lead->size = size;
			lead->whole = size < LEAD_JUMP;
			*at = call + own;
			return 1;
		}
	}
	return 0;
}

static u8 *distance(u8 *to, ulong from, ulong target)
{
	u32 value = (u32)(target - from), i;

	for (i = 0; i < 4; i++, value >>= 8)
		*(volatile u8 *)to++ = (u8)value;
	return to;
}

void lead_jump(u8 *to, ulong address, ulong target)
{
	*to = 0xe9; /* jmp rel32 */
	distance(to + 1, address + 5, target);
}

/*     what was displaced, and all up to the system call
 *     call ftrace_asked           e8 rel32
 *     jmp the call                e9 rel32 90 90       or the call itself, where that has no place of
 *     jmp behind the call         e9 rel32             its own any more; CALL_MOST bytes, NOPs behind
 */
void lead_stub(u8 *to, ulong address, const struct lead *lead)
{
	const u8 *from = lead->from;
	u32 own = call_size(lead->call, lead->call + CALL_MOST), i;
	u8 *at = to;

	for (; from < lead->call; from++)
		*(volatile u8 *)at++ = *from;
	*at = 0xe8;
	at = distance(at + 1, address + (ulong)(at + 5 - to), (ulong)ftrace_asked);
	for (i = 0; i < CALL_MOST; i++)
		((volatile u8 *)at)[i] = lead->whole && i < own ? lead->call[i] : 0x90;
	if (!lead->whole)
		lead_jump(at, address + (ulong)(at - to), (ulong)lead->call);
	at += CALL_MOST;
	lead_jump(at, address + (ulong)(at - to), (ulong)lead->call + own);
}

/* _dl_debug_state() has one instruction, `ret`, and NOPs after it: jmp ftrace_linked */
u32 lead_linker(u8 *to, const u8 *at)
{
	u32 n, size;

	n = at[0] == 0xf3 && at[1] == 0x0f && at[2] == 0x1e && at[3] == 0xfb ? 4 : 0; /* endbr32 */
	if (at[n] != 0xc3)
		return 0;
	for (size = n + 1; size < LEAD_JUMP;) {
		u32 prefix = 0;

		while (at[size + prefix] == 0x66 || at[size + prefix] == 0x2e)
			prefix++;
		if (at[size + prefix] == 0x90 || at[size + prefix] == 0xcc)
			size += prefix + 1;
		else if ((at[size + prefix] == 0x0f && at[size + prefix + 1] == 0x1f) ||
			 (at[size + prefix] == 0x8d && (at[size + prefix + 1] & 0x38) == 0x30)) /* lea, esi */
			size += prefix + length(at + size + prefix);
		else
			return 0;
	}
	/* push ftrace_linked; ret */
	*(volatile u8 *)to = 0x68;
	distance(to + 1, 0, (ulong)ftrace_linked);
	((volatile u8 *)to)[5] = 0xc3;
	return 6;
}

/* Where a system call is over, by the return address in its stub. */
ulong lead_behind(ulong back)
{
	const u8 *at = (const u8 *)back;

	if (*at == 0xe9)
		return back + CALL_MOST + 5 + word_at(at + CALL_MOST + 1);
	return back + call_size(at, at + CALL_MOST);
}
