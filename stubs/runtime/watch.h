/* SPDX-License-Identifier: MIT */
/* Watched variables: what ftpatch/watch injects for watch.c. */
#ifndef FTPATCH_WATCH_H
#define FTPATCH_WATCH_H

#include "hooks.h"

enum { WATCHES = 4 }; /* entries injected: the processor's breakpoints */

/* The injected table is the start of the trace file, before anything happened. */
static inline const struct trace_watch *laid_watch(u32 number)
{
	return (const struct trace_watch *)(ulong)(ftpatch_config.probes + process.bias) + number;
}

/* Of events, 0 for none. */
extern u32 descriptors[WATCHES] __attribute__((visibility("hidden")));

#define F_DUPFD_CLOEXEC 1030

long descriptor_kept(long fd);
int watches_any(void);
void watches_told(struct trace_header *header);
void watches_set(void);
int watch_trapped(const struct trap_info *info, const struct context *context);

#endif
