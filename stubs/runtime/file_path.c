// SPDX-License-Identifier: MIT
/* The location of trace files. The program may overwrite its arguments and environment
 * (setproctitle() does), change its directory, or both: whatever is needed of them is copied at
 * startup. */
#include "file.h"

#define O_FLAGS (02 | 0100 | 0200 | 02000000) /* O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC */
#define MODE 0400 /* nobody may write to it or truncate it: the program would get SIGBUS */
#define TRIES 99 /* programs of one process id, one after another */
#define AT_CWD -100 /* AT_FDCWD */
#define STATX_TYPE 1
#define MODE_AT 28 /* of stx_mode in struct statx, bytes; that has 256 */
#define S_IFMT 0170000
#define S_IFREG 0100000

static char place[PATH]; /* of the file; if `is_folder`, the name is appended to it */
static char execfn[PATH];
static int is_folder;
static char own[PATH]; /* of this process's first file; empty: it has no name */

/* Whether there is something that is not a regular file, nor a link to one. */
static int is_special(const char *path)
{
	u64 held[32];
	u32 i;

	for (i = 0; i < 32; i++)
		held[i] = 0;
	if (failed(syscall6(SYS_statx, AT_CWD, (long)path, 0, STATX_TYPE, (long)held, 0)))
		return 0;
	return (*(u16 *)((char *)held + MODE_AT) & S_IFMT) != S_IFREG;
}

static int same(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

/* Resolve FTPATCH_TRACE against the directory the process started in; note the program's name. 0:
 * do not record. */
int place_kept(char **envp, const char *name)
{
	const char *wanted = environment(envp, "FTPATCH_TRACE"), *server;

	if (name)
		append(execfn, sizeof(execfn), name);
	if (wanted && (!*wanted || same(wanted, "/dev/null")))
		return 0;
	if (!wanted || *wanted != '/') { /* "(unreachable)" is not a directory: leave the path
	                                    relative */
		long n = syscall6(SYS_getcwd, (long)place, PATH - 1, 0, 0, 0, 0);

		if (failed(n) || *place != '/')
			place[0] = 0;
		else if (place[1])
			append(place, PATH, "/");
	}
	is_folder = !wanted;
	if (wanted && !append(place, PATH, wanted)) {
		say("FTPATCH_TRACE", wanted, "the name is too long; nothing is recorded");
		return 0;
	}
	if (wanted && is_special(place)) {
		say("FTPATCH_TRACE", wanted, "not a regular file; nothing is recorded");
		return 0;
	}
	server = environment(envp, "FTPATCH_TRACE_SOCKET");
	if (server)
		server_kept(server);
	return 1;
}

const char *program_name(void)
{
	return execfn;
}

static long create(const char *path)
{
	return open_(path, O_FLAGS | O_NOFOLLOW_, MODE);
}

/* Create a file, and its name. `again`: a process of this run has that name already. */
long place_made(char path[PATH], int again)
{
	ulong end;
	long fd = -EEXIST;
	u32 i;

	path[0] = 0; /* not all of it: gcc would call memset */
	append(path, PATH, place);
	if (is_folder) {
		if (!append(path, PATH, "ftpatch.") || !append_number(path, PATH, process.pid) ||
		    !append(path, PATH, ".trace"))
			return -EINVAL;
		again = 0;
	}
	if (!again)
		fd = create(path);
	if (failed(fd) && !is_folder) { /* another program of this run has it */
		if (!append(path, PATH, ".") || !append_number(path, PATH, process.pid))
			return -EINVAL;
		fd = create(path);
	}
	end = length(path);
	for (i = 2; fd == -EEXIST && i <= TRIES; i++) { /* this process, before it called exec */
		path[end] = 0;
		if (!append(path, PATH, ".") || !append_number(path, PATH, i))
			return -EINVAL;
		fd = create(path);
	}
	own[0] = 0;
	if (!failed(fd))
		append(own, PATH, path);
	return fd;
}

/* The name of one of the files that follow a process's first, which is number 0. */
int place_of(char path[PATH], u32 number)
{
	path[0] = 0;
	return own[0] && append(path, PATH, own) &&
	       (!number || (append(path, PATH, ".r") && append_number(path, PATH, number)));
}

/* Create the file of a number, or of the next one that no other file has. */
long place_next(char path[PATH], u32 *number)
{
	long fd = -EEXIST;
	u32 i;

	for (i = 0; fd == -EEXIST && i < TRIES; i++) {
		if (!place_of(path, *number + i))
			return -EINVAL;
		fd = create(path);
	}
	*number += i - 1;
	return fd;
}
