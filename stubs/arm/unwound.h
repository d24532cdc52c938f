/* SPDX-License-Identifier: MIT */
/* Unwinders that meet return_to_handler. They read .ARM.exidx, which has no expressions, but names a routine
 * to call (Exception Handling ABI for the Arm Architecture, 7.3 and 9.2): entry.S names this. It finds the
 * function's real caller, and sets pc and sp to where it was called from.
 *
 * Of an unwinder's context only its own functions know the layout, and a stub calls none. But it has the
 * sixteen registers in a row: behind one word in libgcc (phase1_vrs of unwind-arm-common.inc), behind two in
 * LLVM's libunwind (UnwindCursor). They are there only if pc is where the row is for, and sp leads to the
 * slot of a pending call: in place of any other layout nothing is touched.
 *
 * A static program's unwinder searches the program's own index, whose last row leads here for all that is
 * above it (ftpatch/elf/exidx.py): then what the stub's index says of its functions is followed here.
 */
#ifndef FTPATCH_UNWOUND_H
#define FTPATCH_UNWOUND_H

#include "threads.h"

enum unwound { URC_CONTINUE_UNWIND = 8, URC_FAILURE = 9 };
enum { FIRST_REGISTER = 1, LAST_REGISTER = 2, SP = 13, LR = 14, PC = 15, HANDLER_SIZE = 128 };
enum { HANDLER_KEPT = 32, HANDLER_CLEARED = 16, CANTUNWIND = 1, NOWHERE = 4 };

/* _Unwind_Control_Block (7.2), up to where the row's function begins. */
struct control_block {
	u64 class;
	ulong cleanup, unwinder[5], barrier[6], cleanups[4], start;
};

extern const u32 exidx_start[], exidx_end[] __attribute__((visibility("hidden")));
extern const char runtime_end[] __attribute__((visibility("hidden")));

/* Where the call of this slot returns to, 0: there is none. The slot is looked at twice: a signal may have put
 * the frame aside in between. */
static inline ulong returns_to(ulong slot)
{
	struct frame *frame;
	ulong ret;

	do {
		frame = frame_elsewhere(slot);
		ret = frame ? frame->ret : 0;
		barrier();
	} while (frame && (frame->slot != slot || frame->ret != ret));
	return ret;
}

/* In return_to_handler, by the bytes of it that have passed: what it has on the stack, of which the last word
 * is the place, once it was cleared. */
static inline int handler_left(ulong *at, ulong passed)
{
	ulong slot = at[SP] + (passed == 0 ? 0 : passed == 4 ? 4 : HANDLER_KEPT), ret = 0;

	if (slot % 8)
		return 0;
	if (passed >= HANDLER_CLEARED)
		ret = ((ulong *)slot)[-1];
	ret = ret ?: returns_to(slot);
	if (!ret)
		return 0;
	at[SP] = slot;
	at[PC] = ret;
	return 1;
}

static inline ulong there(const u32 *place)
{
	return (ulong)place + (ulong)((long)(*place << 1) >> 1);
}

/* The bytes of instructions that an index or its table has, most significant first in each word. */
struct steps {
	const u32 *word;
	int byte, left;
};

static u32 next_step(struct steps *steps)
{
	u32 byte = *steps->word >> 8 * steps->byte & 0xff;

	if (!steps->left)
		return 0xb0; /* finish */
	steps->left--;
	if (steps->byte-- == 0) {
		steps->byte = 3;
		steps->word++;
	}
	return byte;
}

/* The instructions of a function of the stub; 0: there are none. */
static int steps_of(ulong ip, struct steps *steps)
{
	const u32 *row, *entry = 0;

	for (row = exidx_start; row < exidx_end && there(row) <= ip; row += 2)
		entry = row + 1;
	if (!entry || *entry == CANTUNWIND)
		return 0;
	if (!(*entry >> 31))
		entry = (const u32 *)there(entry);
	if (!(*entry >> 31)) /* a routine */
		return 0;
	steps->word = entry;
	steps->byte = *entry >> 24 & 1 ? 1 : 2; /* of personality routines 0 and 1 */
	steps->left = *entry >> 24 & 1 ? 2 + 4 * (*entry >> 16 & 0xff) : 3;
	return 1;
}

/* Pop the registers from `first` on of which the mask has the bits. */
static void popped(ulong *at, u32 mask, int first)
{
	ulong *from = (ulong *)at[SP];

	for (; mask; mask >>= 1, first++)
		if (mask & 1)
			at[first] = *from++;
	at[SP] = (ulong)from;
}

/* A frame of the stub, which has no VFP registers (EHABI, 10.3). */
static int stub_left(ulong *at)
{
	struct steps steps;
	u32 step, more;
	int shift;

	if (!steps_of(at[PC] - 2, &steps))
		return 0;
	at[PC] = 0;
	while ((step = next_step(&steps)) != 0xb0) {
		if (step < 0x80) {
			more = ((step & 0x3f) << 2) + 4;
			at[SP] += step < 0x40 ? more : -more;
		} else if (step < 0x90) {
			more = (step & 15) << 8 | next_step(&steps);
			popped(at, more, 4);
		} else if (step < 0xa0) {
			at[SP] = at[step & 15];
		} else if (step < 0xb0) {
			popped(at, ((2u << (step & 7)) - 1) | (step & 8 ? 1u << (LR - 4) : 0), 4);
		} else if (step == 0xb1) {
			popped(at, next_step(&steps) & 15, 0);
		} else if (step == 0xb2) {
			for (at[SP] += 0x204, shift = 2, more = 0x80; more & 0x80; shift += 7) {
				more = next_step(&steps);
				at[SP] += (more & 0x7f) << shift;
			}
		} else {
			return 0;
		}
	}
	at[PC] = at[PC] ?: at[LR];
	return 1;
}

static inline int is_ours(ulong ip)
{
	ulong start = (ulong)&ftpatch_config;

	return ip - start < (ulong)runtime_end - start;
}

enum unwound handler_unwound(int state, const struct control_block *block, ulong *context)
	__attribute__((visibility("hidden")));

/* What cannot be unwound ends the stack, as it would by its row: nothing is at such an address. A failure told
 * to an unwinder that ends a thread would end the process (__pthread_unwind() of glibc). */
static int ends(ulong *at, ulong start)
{
	if (at[PC] < start || at[SP] % 4)
		return 0;
	at[PC] = NOWHERE;
	return 1;
}

enum unwound handler_unwound(int state, const struct control_block *block, ulong *context)
{
	int first;

	(void)state;
	for (first = FIRST_REGISTER; first <= LAST_REGISTER; first++) {
		ulong *at = context + first, passed = at[PC] - (ulong)return_to_handler;

		if (passed < HANDLER_SIZE ? handler_left(at, passed) : is_ours(at[PC]) && stub_left(at))
			return URC_CONTINUE_UNWIND;
	}
	for (first = FIRST_REGISTER; first <= LAST_REGISTER; first++)
		if (ends(context + first, block->start))
			return URC_CONTINUE_UNWIND;
	return URC_FAILURE;
}

#endif
