/* SPDX-License-Identifier: MIT */
/* Shared libraries that are traced with the program. There is one runtime, the program's: a library
 * has only a stub (ARCH/library.S), which calls it from the moment that it is told whom to call. */
#ifndef FTPATCH_LIBRARIES_H
#define FTPATCH_LIBRARIES_H

#include "runtime.h"

#define LIBRARY_MAGIC "FTPATCHLIB\0v1\0\0" /* with the last NUL 16 bytes */

/* In the library's own memory. `entry` is trace_entry(), 0: nobody; `delta`: what to add to an address
 * in the library, so that the distance from the program's base becomes `func` of an event. */
struct library_hook {
	char magic[16];
	u8 image_id[32];
	ulong entry __attribute__((aligned(8)));
	ulong delta __attribute__((aligned(8)));
};

/* What the program is told when it is patched: one for each library, the last one's `told.length` is 0. */
struct library {
	u64 dynamic; /* link address of the library's dynamic table, by which it is found */
	u64 place;   /* ... of its struct library_hook */
	struct trace_library told; /* goes into the trace file, with its bias filled in */
};

#if defined(PROBES) || defined(WATCH) /* they are of the program alone; of libraries names are told */
#define libraries_found() objects_found()
#define libraries_told(header) objects_told(header)
#define libraries_connected()
/* lead.c */
void objects_found(void);
void objects_told(struct trace_header *header);
#else
/* libraries.c */
void libraries_found(void);
void libraries_told(struct trace_header *header);
void libraries_connected(void);
#endif

#endif
