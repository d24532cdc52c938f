/* SPDX-License-Identifier: MIT */
/* What an unwinder that meets return_to_handler evaluates, in DWARF expressions (DWARF 5, 2.5): what
 * the frame with this slot says, in the ret_stack of whatever thread.
 *
 *     for (t = threads; t; t = t->next)
 *         for (frame = t->top; frame != t->low;)
 *             if ((--frame)->slot == slot && (ret = frame->ret, frame->slot == slot) &&
 *                 ret != return_to_handler)
 *                 return ret - 1;
 *     return 0;
 *
 * The slot is looked at twice: a signal whose handler runs on a stack of its own puts the frames of the
 * interrupted stack aside, further down, and its own calls take their places. They may do so after the
 * slot was found, and before the return address is read.
 *
 * Less one: the frame is marked as a signal's, or else it and its caller's, which have the same CFA,
 * would be taken for one another (uw_identify_context() of libgcc); and what a signal interrupted is
 * looked for at its address, what made a call just before it.
 *
 * Before it the slot lies on the stack twice, for libgcc's DW_OP_pick does not reach the last. In front
 * of all stands `unfollowed`: valgrind evaluates no branch, and warns of the first operation that it
 * does not know (readdwarf.c, dwarfexpr_to_dag()), but gives up without a word where the 20 values are
 * not enough that its stack has room for. To others it adds 0 twenty times.
 *
 * Who includes this defines
 *
 *     ORIGIN, ORIGIN_SIZE      operations that yield return_to_handler, and their bytes
 *     DISTANCE, DISTANCE_SIZE  from there to where the distance to `process.threads` stands, ULEB128
 *     RESULT_SIZE              bytes of `search_result`, a macro: what becomes of the address
 *
 * Of struct thread, `top` is at 0, as `slot` of struct frame.
 */
#define TO_RESULT (ORIGIN_SIZE + DISTANCE_SIZE + ORIGIN_SIZE + 64)	/* bytes before the result */
#define SEARCH (TO_RESULT + RESULT_SIZE)
#define ZEROS 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30	/* lit0 */
#define PLUSES 0x22, 0x22, 0x22, 0x22, 0x22, 0x22, 0x22, 0x22, 0x22, 0x22	/* plus */
#define UNFOLLOWED 40
#define BYTES(n) ((n) & 127) + 128, (n) >> 7	/* ULEB128: more than 127 */
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define SHORT(n) 0, (n)
#define BACK(n) 0xff, 256 - (n)
#else
#define SHORT(n) (n), 0
#define BACK(n) 256 - (n), 0xff
#endif

	.macro	unfollowed
	.cfi_escape ZEROS, ZEROS, PLUSES, PLUSES
	.endm

	.macro	search
	.cfi_escape ORIGIN, 0x23, DISTANCE	/* (origin) plus_uconst */
	.cfi_escape 0x12, 0x06, 0x22		/* dup deref plus            slot &threads */
	.cfi_escape 0x06			/* deref                     slot t */
	.cfi_escape 0x12, 0x30, 0x29		/* t: dup lit0 eq */
	.cfi_escape 0x28, SHORT(ORIGIN_SIZE + RESULT_SIZE + 53)	/* bra -> end: 0 */
	.cfi_escape 0x12, 0x06			/* dup deref                 slot t frame */
	.cfi_escape 0x14, 0x23, THREAD_LOW, 0x06	/* frame: over plus_uconst deref   slot t frame low */
	.cfi_escape 0x14, 0x29			/* over eq */
	.cfi_escape 0x28, SHORT(ORIGIN_SIZE + 35)	/* bra -> next */
	.cfi_escape 0x08, SIZEOF_FRAME, 0x1c	/* const1u minus             slot t frame */
	.cfi_escape 0x12, 0x06			/* dup deref                 slot t frame its */
	.cfi_escape 0x15, 0x03, 0x2e		/* pick 3 ne */
	.cfi_escape 0x28, BACK(20)		/* bra -> frame */
	.cfi_escape 0x12, 0x23, FRAME_RET, 0x06	/* dup plus_uconst deref     slot t frame ret */
	.cfi_escape 0x14, 0x06			/* over deref                slot t frame ret its */
	.cfi_escape 0x15, 0x04, 0x2e		/* pick 4 ne */
	.cfi_escape 0x28, SHORT(ORIGIN_SIZE + 8)	/* bra -> drop */
	.cfi_escape 0x12			/* dup */
	.cfi_escape ORIGIN, 0x29		/* (origin) eq */
	.cfi_escape 0x28, SHORT(3)			/* bra -> drop */
	.cfi_escape 0x2f, SHORT(11)			/* skip -> result            ret */
	.cfi_escape 0x13			/* drop                      slot t frame */
	.cfi_escape 0x2f, BACK(ORIGIN_SIZE + 44)	/* skip -> frame */
	.cfi_escape 0x13			/* next: drop                slot t */
	.cfi_escape 0x23, THREAD_NEXT, 0x06	/* plus_uconst deref         slot next */
	.cfi_escape 0x2f, BACK(ORIGIN_SIZE + 59)	/* skip -> t */
	search_result				/* result */
	.endm
