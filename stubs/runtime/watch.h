/* SPDX-License-Identifier: MIT */
/* Watched variables: what ftpatch/watch injects for watch.c. */
#ifndef FTPATCH_WATCH_H
#define FTPATCH_WATCH_H

#include "hooks.h"
#include "probes.h"

enum watch_limits {
	WATCHES = 4,      /* entries injected: the processor's breakpoints */
	WATCH_STEPS = 63, /* of a filter */
	WATCH_LIBRARY = 56, /* bits of a link address; above are a number for its library, 0: the program's */
};

enum watch_flags {
	WATCH_CALLS = 1, /* the calls that led to an access are recorded with it: stack_taken() */
};

/* Of a step FETCH_REGISTER: what a filter may compare. */
enum watch_word {
	WORD_OLD, /* the value at the access before, in as many bytes as are watched */
	WORD_NEW, /* ... and now */
	WORD_IP,  /* link address after the instruction, 0: not known */
	WORD_TID,
	WATCH_WORDS
};

/* What becomes of a watch's accesses. ftpatch_config.caller points to one for each; programs that
 * earlier versions patched have none. */
struct watch_rule {
	u32 filter; /* steps of its filter */
	u32 flags;  /* enum watch_flags */
	u64 unused;
	struct fetch step[WATCH_STEPS];
};

/* What is known of a watch's library; none for one of the program. ftpatch_config.returned points to one for
 * each, in programs that have them. */
struct watched_library {
	u64 dynamic; /* link address of its dynamic table, 0: none */
	u64 place;   /* ... of bytes by which it is known */
	u8 id[32];
	u64 slot;    /* ... of the slot in its GOT that has the variable's address, 0: the variable is its own */
	u64 bound;   /* the variable's link address, with what the linker adds in that slot */
};

/* The injected table is the start of the trace file, before anything happened. */
static inline const struct trace_watch *laid_watch(u32 number)
{
#ifdef PROBES
	u64 at = ftpatch_config.watches;
#else
	u64 at = ftpatch_config.probes;
#endif

	return (const struct trace_watch *)(ulong)(at + process.bias) + number;
}

/* Those of a trace file: the end of its header. */
static inline struct trace_watch *watches_in(struct trace_header *header)
{
	return (struct trace_watch *)((char *)header + header->header_size) - WATCHES;
}

static inline const struct watch_rule *laid_rule(u32 number)
{
	return (const struct watch_rule *)(ulong)(ftpatch_config.caller + process.bias) + number;
}

static inline const struct watched_library *laid_library(u32 number)
{
	if (!ftpatch_config.returned)
		return 0;
	return (const struct watched_library *)(ulong)(ftpatch_config.returned + process.bias) + number;
}

/* watch_libraries.c: whether a watch's variable is there; then its address is as far above the laid one. */
extern u64 watch_above[WATCHES] __attribute__((visibility("hidden")));
int watch_found(u32 number);

/* Of events, 0 for none. */
extern u32 descriptors[WATCHES] __attribute__((visibility("hidden")));

#define F_DUPFD_CLOEXEC 1030

long descriptor_kept(long fd);
int watches_any(void);
void watches_told(struct trace_header *header);
void watches_set(void);
/* watch_filter.c */
int watch_passes(u32 number, const u64 words[WATCH_WORDS]);
int watch_trapped(const struct trap_info *info, const struct context *context);

#endif
