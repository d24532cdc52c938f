/* SPDX-License-Identifier: MIT */
/* The dynamic linker's list of loaded objects, as debuggers read it (<link.h>). */
#ifndef FTPATCH_LINK_MAP_H
#define FTPATCH_LINK_MAP_H

#include "text.h"

struct link_map {
	ulong bias;
	char *name;
	ulong dynamic;
	struct link_map *next, *previous;
};

struct r_debug {
	int version;
	struct link_map *map;
	ulong brk; /* called before and after the list changes */
	int state;
	ulong base;
	struct r_debug *next; /* of another namespace, since version 2 */
};

/* Whether 16 bytes are readable: the kernel reads a signal mask before it rejects an invalid `how`.
 * */
static inline int readable(ulong at)
{
	return syscall6(SYS_rt_sigprocmask, -1, (long)at, 0, 8, 0, 0) != -EFAULT &&
	       syscall6(SYS_rt_sigprocmask, -1, (long)at + 8, 0, 8, 0, 0) != -EFAULT;
}

#endif
