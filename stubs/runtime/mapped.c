// SPDX-License-Identifier: MIT
/* Only the kernel can say whether an address is readable: it copies a signal mask from there before it
 * finds `how` invalid (sigprocmask(2), EFAULT and EINVAL). Any other answer is a seccomp filter's, and
 * tells nothing. */
#include "elf.h"
#include "mapped.h"

#define EINVAL 22

int is_mapped(ulong at)
{
	return at > 7 && /* a NULL mask would succeed */
	       syscall6(SYS_rt_sigprocmask, -1, (long)(at & ~7ul), 0, 8, 0, 0) == -EINVAL;
}

/* The program's code and constants stay as long as it runs: what cannot be written, as far as it is
 * in one piece. */
void own_pages_found(void)
{
	const struct elf_segment *first = (const struct elf_segment *)process.phdr, *one;
	const struct elf_segment *after = first + process.phnum;
	ulong bias = 0, low = 0, high = 0, from, to;

	for (one = first; one < after && one->type != PT_PHDR; one++)
		;
	if (one >= after) /* it does not tell where it is */
		return;
	bias = process.phdr - (ulong)one->address;
	for (one = first; one < after; one++) {
		from = (bias + (ulong)one->address) / LEAST_PAGE;
		to = (bias + (ulong)(one->address + one->file_size) + LEAST_PAGE - 1) / LEAST_PAGE;
		if (one->type != PT_LOAD || one->flags & PF_W || !(one->flags & PF_R) || (high && from != high) ||
		    to <= from || !is_mapped(from * LEAST_PAGE) || !is_mapped((to - 1) * LEAST_PAGE))
			continue;
		low = high ? low : from;
		high = to;
	}
	process.own_page = low;
	process.own_pages = high - low;
}
