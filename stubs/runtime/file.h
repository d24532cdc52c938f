/* SPDX-License-Identifier: MIT */
/* Shared by start.c, file.c, file_path.c and threads.c. */
#ifndef FTPATCH_FILE_H
#define FTPATCH_FILE_H

#include "text.h"
#include "threads.h"

#define LEAST (64u << 10) /* minimum size of a trace file (bytes) */
#define PATH 1024 /* maximum length of a path, NUL included */

/* file_path.c: what the process was given at startup, before the program can overwrite it. */
int place_kept(char **envp, const char *name);
const char *program_name(void);
long place_made(char path[PATH], int again);
int place_of(char path[PATH], u32 number);
long place_next(char path[PATH], u32 *number);

/* The number of arguments at the initial stack pointer. An architecture's _start may put something else there,
 * which a library finds. */
#ifdef ARGC_OVERWRITTEN
static inline ulong arguments_at(const ulong *sp)
{
	const ulong *at = sp + 1;

	while (*at)
		at++;
	return (ulong)(at - (sp + 1));
}
#else
#define arguments_at(sp) (*(sp))
#endif

/* start.c */
void process_started(ulong *sp, char **envp);

/* in_library.c: of the library's file, empty if this is none, or it is unknown. */
const char *library_path(void);

/* received_file.c */
void server_kept(const char *name);
long file_handed(int again);

/* file.c: 0, or a negative errno */
long make_file(int again);
long make_next(struct trace_header *full, ulong at, u64 room, u32 *number);

/* rotate.c */
#ifdef ROTATING
void rotation_wanted(char **envp);
void rotation_begun(struct trace_header *header);
void rotation_cut(struct trace_header *header, u64 size);
int is_rotator(void);
void rotation_forked(ulong tp, const struct trace_header *parents);
#else
#define rotation_wanted(envp) ((void)(envp))
#define rotation_begun(header) ((void)(header))
#define is_rotator() 0
#define rotation_cut(header, size) ((header) == process.header ? file_lost(size) : (void)0)
#define rotation_forked(tp, parents) ((void)(tp), (void)(parents))
#endif

/* switch.c */
void switch_kept(char **envp);

/* sigbus.c */
void mapping_kept(ulong at, ulong size);
int bus_kept(void);
int is_cut(ulong at);
void file_lost(u64 size);

#endif
