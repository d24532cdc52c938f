/* SPDX-License-Identifier: MIT */
/* Whether memory is there. */
#ifndef FTPATCH_MAPPED_H
#define FTPATCH_MAPPED_H

#include "threads.h"

#define LEAST_PAGE 4096ul

int is_mapped(ulong at);
void own_pages_found(void);

/* Whether a page is mapped; `known`: the last one that was. */
static inline int page_is_there(ulong page, ulong *known)
{
	if (page == *known || page - process.own_page < process.own_pages)
		return 1;
	if (!is_mapped(page * LEAST_PAGE))
		return 0;
	*known = page;
	return 1;
}

#endif
