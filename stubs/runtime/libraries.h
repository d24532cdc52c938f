/* SPDX-License-Identifier: MIT */
/* Shared libraries that are traced with the program. There is one runtime, the program's: a library
 * has only a stub (ARCH/library.S), which calls it once it has been told the address. */
#ifndef FTPATCH_LIBRARIES_H
#define FTPATCH_LIBRARIES_H

#include "link_map.h"

#define LIBRARY_MAGIC "FTPATCHLIB\0v1\0\0" /* with the last NUL 16 bytes */

/* In the library's own memory. `entry` is trace_entry(), 0: none; `delta`: to be added to an
 * address in the library, so that its distance from the program's base becomes `func` of an event.
 * If the library has probes (ARCH/library_probes.S), `entry` is ftrace_caller, and `delta` is
 * ftrace_regs_caller. */
struct library_hook {
	char magic[16];
	u8 image_id[32];
	ulong entry __attribute__((aligned(8)));
	ulong delta __attribute__((aligned(8)));
};

/* What the program knows about each library from being patched; the last one's `told.length` is 0.
 * */
struct library {
	u64 dynamic; /* link address of the library's dynamic table, which identifies it */
	u64 place;   /* ... of its struct library_hook; with TRACE_ATTACHED its address in memory */
	struct trace_library told; /* copied to the trace file, with its bias filled in */
};

/* The same for one that has probes; the last one's `place` is 0. Its link addresses in the program's
 * tables are the library's, until it is found. */
struct probed_library {
	u64 dynamic, place;
	u8 id[32];        /* as in its struct library_hook: of this library for this program */
	u32 first, count; /* places */
};

/* The hook of a library that the linker has mapped, NULL if it turns out to be another library. */
static inline struct library_hook *hook_of(u64 place, const u8 *id, ulong bias)
{
	struct library_hook *hook = (struct library_hook *)(ulong)(place + bias);
	static const u8 magic[16] = LIBRARY_MAGIC;
	ulong at;

	for (at = 0; at < sizeof(*hook); at += 16)
		if (!readable((ulong)hook + at))
			return 0;
	for (at = 0; at < sizeof(magic); at++)
		if ((u8)hook->magic[at] != magic[at])
			return 0;
	for (at = 0; at < sizeof(hook->image_id); at++)
		if (hook->image_id[at] != id[at])
			return 0;
	return hook;
}

#ifdef PROBES
/* probed_libraries.c */
void libraries_found(void);
void libraries_connected(void);
#define libraries_told(header) objects_told(header)
/* system_calls.c */
void objects_found(void);
void objects_told(struct trace_header *header);
#elif defined(WATCH) /* of the program only; libraries just get their names recorded */
#define libraries_found() objects_found()
#define libraries_told(header) objects_told(header)
#define libraries_connected()
/* system_calls.c */
void objects_found(void);
void objects_told(struct trace_header *header);
#else
/* libraries.c */
void libraries_found(void);
void libraries_told(struct trace_header *header);
void libraries_connected(void);
#endif

#endif
