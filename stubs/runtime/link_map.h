/* SPDX-License-Identifier: MIT */
/* The dynamic linker's list of what it has loaded, as debuggers read it (<link.h>). */
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
	ulong brk; /* is called before and after the list changes */
	int state;
	ulong base;
	struct r_debug *next; /* from version 2 on: of another namespace */
};

/* Whether there is memory to be read, 16 bytes: the kernel looks at a mask before it looks at what is
 * to be done with it, which is nothing that can be done. */
static inline int readable(ulong at)
{
	return syscall6(SYS_rt_sigprocmask, -1, (long)at, 0, 8, 0, 0) != -EFAULT &&
	       syscall6(SYS_rt_sigprocmask, -1, (long)at + 8, 0, 8, 0, 0) != -EFAULT;
}

#endif
