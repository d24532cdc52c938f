/* SPDX-License-Identifier: MIT */
/* A signal handler's context: `struct context` of arch.h is its beginning, up to the registers. */
#ifndef FTPATCH_CONTEXT_H
#define FTPATCH_CONTEXT_H

#include "runtime.h"

/* Go on at another place. An architecture may have more to do. */
#ifndef GOES_ON
static inline void goes_on(struct context *context, ulong ip)
{
	context->ip = ip;
}
#endif

/* The signals blocked when this one arrived. */
static inline u64 *signal_mask(struct context *context)
{
	return (u64 *)((char *)context + SIGNAL_MASK);
}

#endif
