/* SPDX-License-Identifier: MIT */
/* Whether memory is there. */
#ifndef FTPATCH_MAPPED_H
#define FTPATCH_MAPPED_H

#include "threads.h"

#define LEAST_PAGE 4096ul

int is_mapped(ulong at);

/* Whether a page is mapped; `known`: the last one that was. */
static inline int page_is_there(ulong page, ulong *known)
{
	if (page != *known && !is_mapped(page * LEAST_PAGE))
		return 0;
	*known = page;
	return 1;
}

#endif
