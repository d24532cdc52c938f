/* SPDX-License-Identifier: MIT */
/* In a running process the stub lies in memory of no image, where no unwinder looks for unwind
 * information. Unwinders ask for it by _dl_find_object() (glibc 2.35, <dlfcn.h>) or
 * dl_iterate_phdr() (<link.h>), through slots of their GOT, which lead here then. */
#ifndef FTPATCH_LOOKUPS_H
#define FTPATCH_LOOKUPS_H

#include "runtime.h"

enum lookups_most { LOOKED_UP = 65 }; /* areas: the runtime's, and 64 libraries' */

/* Code of a stub, and its .eh_frame_hdr. */
struct looked_up {
	u64 low, high, table;
};

/* Filled in by ftpatch; all are addresses in memory. */
struct lookups {
	u64 find_object, iterate_phdr; /* the functions that the slots are for, 0: not there */
	u32 asked;                     /* an unwinder has been here */
	u32 count;
	struct looked_up area[LOOKED_UP];
};

#endif
