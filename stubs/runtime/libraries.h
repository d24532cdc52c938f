/* SPDX-License-Identifier: MIT */
/* Shared libraries that are traced with the program. There is one runtime, the program's: a library
 * has only a stub (ARCH/library.S), which calls it once it has been told the address. */
#ifndef FTPATCH_LIBRARIES_H
#define FTPATCH_LIBRARIES_H

#include "runtime.h"

#define LIBRARY_MAGIC "FTPATCHLIB\0v1\0\0" /* with the last NUL 16 bytes */

/* In the library's own memory. `entry` is trace_entry(), 0: none; `delta`: to be added to an
 * address in the library, so that its distance from the program's base becomes `func` of an event.
 * */
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

#if defined(PROBES) || defined(WATCH) /* for the program only; libraries just get their names
                                         recorded */
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
