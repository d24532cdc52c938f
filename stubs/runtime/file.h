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

/* received_file.c */
void server_kept(const char *name);
long file_handed(int again);

/* file.c: 0, or a negative errno */
long make_file(int again);

/* sigbus.c */
void mapping_kept(ulong at, ulong size);
void bus_kept(void);

#endif
