// SPDX-License-Identifier: MIT
/* Only the kernel can say whether an address is readable: it copies a signal mask from there before it
 * finds `how` invalid (sigprocmask(2), EFAULT and EINVAL). Any other answer is a seccomp filter's, and
 * tells nothing. */
#include "mapped.h"

#define EINVAL 22

int is_mapped(ulong at)
{
	return at > 7 && /* a NULL mask would succeed */
	       syscall6(SYS_rt_sigprocmask, -1, (long)(at & ~7ul), 0, 8, 0, 0) == -EINVAL;
}
