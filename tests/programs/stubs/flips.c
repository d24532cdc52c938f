// SPDX-License-Identifier: MIT
/* Changes every register, at the first entry, or with -DRETURN at the first return, after it has shown
 * what was there (shows.c). */
#include "ftrace_regs.h"
#include "said.h"

#if defined(__aarch64__)
#define FLIPPED 31 /* regs[] */
#define SP 99
#define FLAGS (regs->pstate ^= 0xf0000000ul)
#elif defined(__riscv)
#define FLIPPED 32 /* with pc, which is kept */
#define SP 2
#define FLAGS (each[0] ^= 0x01010101ul)
#elif defined(__arm__)
#define FLIPPED 13 /* r[] */
#define SP 99
#define FLAGS (regs->cpsr ^= 0xf0000000ul)
#elif defined(__s390x__)
#define FLIPPED 18 /* with psw_addr, which is kept */
#define SP 17
#define FLAGS (each[1] ^= 0x02020202ul, regs->psw_mask ^= 3ul << 44)
#elif defined(__powerpc64__)
#define FLIPPED 37 /* with nip, which is kept */
#define SP 1
#define FLAGS (each[32] ^= 0x01010101ul * 33, regs->xer ^= 0x01010101ul * 36 ^ 7ul << 29)
#elif defined(__i386__)
#define FLIPPED 8
#define SP 4
#define FLAGS (regs->flags ^= 0x8c1ul) /* CF, ZF, SF, OF */
#else
#define FLIPPED 16
#define SP 4
#define FLAGS (regs->flags ^= 0x8c1ul)
#endif

static void flip(struct fgraph_call *call, struct ftrace_regs *regs)
{
	static int done;
	unsigned long *each = (unsigned long *)regs;
	unsigned long long kind = 0;
	int i;

	if (done++)
		return;
	said(9, &kind, sizeof(kind));
	said(9, call, sizeof(*call));
	said(9, regs, sizeof(*regs));
	for (i = 0; i < FLIPPED; i++)
		if (i != SP)
			each[i] ^= 0x01010101ul * (unsigned long)(i + 1);
	FLAGS;
}

#ifdef RETURN
void ftrace_regs_caller(struct fgraph_call *call, struct ftrace_regs *regs)
{
	(void)call;
	(void)regs;
}

void ftrace_regs_return(struct fgraph_call *call, struct ftrace_regs *regs)
{
	flip(call, regs);
}
#else
void ftrace_regs_caller(struct fgraph_call *call, struct ftrace_regs *regs)
{
	flip(call, regs);
}
#endif
