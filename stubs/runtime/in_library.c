// SPDX-License-Identifier: MIT
/* The start in a shared library, which its first initializer calls, in a process that may run for long:
 * there is no initial stack at hand, and the image is not the program's. Until then, calls of the
 * library's functions do nothing: by other libraries' constructors, and by resolvers of IFUNCs. */
#include "file.h"
#include "link_map.h"

#define O_RDONLY_CLOEXEC 02000000
#define AT_PAGESZ 6
#define MOST 100000 /* arguments and variables */
#define START_STACK 28 /* field of /proc/PID/stat (proc(5)), of which the second one is in parentheses */

static char own[PATH]; /* of the library's file */

/* A file of /proc, read to its end by one byte after another. */
struct text {
	long fd, held, at;
	char part[512];
};

static int next(struct text *text)
{
	if (text->at >= text->held) {
		text->at = 0;
		do
			text->held = syscall6(SYS_read, text->fd, (long)text->part, sizeof(text->part), 0, 0, 0);
		while (text->held == -EINTR);
		if (text->held <= 0)
			return -1;
	}
	return (u8)text->part[text->at++];
}

static int opened(struct text *text, const char *path)
{
	text->held = text->at = 0;
	text->fd = open_(path, O_RDONLY_CLOEXEC, 0);
	return !failed(text->fd);
}

/* Where the kernel has put argc, argv, the environment and the auxiliary vector; 0: unknown. */
static ulong *initial_stack(void)
{
	struct text text;
	ulong found = 0;
	int c, field = 0;

	if (!opened(&text, "/proc/self/stat"))
		return 0;
	while ((c = next(&text)) >= 0) {
		if (c == ')') { /* the last one ends the second field */
			field = 2;
			found = 0;
		} else if (c == ' ' && field) {
			field++;
		} else if (field == START_STACK && c >= '0' && c <= '9') {
			found = found * 10 + (ulong)(c - '0');
		}
	}
	syscall6(SYS_close, text.fd, 0, 0, 0, 0, 0);
	return (ulong *)(found & -sizeof(ulong));
}

/* The same without /proc, by what glibc passes to an initializer. Others pass nothing, and these are what was
 * in registers. */
static ulong *stack_given(ulong argc, char **argv)
{
	ulong *sp = (ulong *)argv - 1, *at = sp;
	u32 ends = 0; /* of the arguments, and of the environment */

	if (argc > MOST || (ulong)sp % sizeof(ulong) || !readable((ulong)sp) || arguments_at(sp) != argc)
		return 0;
	while (ends < 2)
		if (++at - sp > MOST || !readable((ulong)at))
			return 0;
		else if (!*at && ++ends == 1 && (ulong)(at - sp) != argc + 1)
			return 0;
	for (at++; readable((ulong)at) && at[0]; at += 2)
		if (at[0] == AT_PAGESZ)
			return at[1] && !(at[1] & (at[1] - 1)) ? sp : 0;
	return 0;
}

static ulong hexadecimal(struct text *text, int end)
{
	ulong number = 0;
	int c;

	while ((c = next(text)) >= 0 && c != end)
		number = number << 4 | (ulong)(c <= '9' ? c - '0' : c - 'a' + 10);
	return number;
}

/* Find the file that this is mapped from: a line of /proc/self/maps. */
static void path_kept(void)
{
	ulong here = (ulong)&ftpatch_config, from, to;
	struct text text;
	u32 n = 0;
	int c;

	if (!opened(&text, "/proc/self/maps"))
		return;
	do {
		from = hexadecimal(&text, '-');
		to = hexadecimal(&text, ' ');
		while ((c = next(&text)) >= 0 && c != '\n')
			if (here - from < to - from && (n || c == '/') && n < PATH - 1)
				own[n++] = (char)c;
	} while (c >= 0 && !n);
	syscall6(SYS_close, text.fd, 0, 0, 0, 0, 0);
}

const char *library_path(void)
{
	return own;
}

/* An initializer's arguments are the program's in glibc, and its environment as it is now. Other libcs
 * pass none: then the environment is the one that the program was started with. */
void library_start(ulong argc, char **argv, char **envp)
{
	ulong *sp;

	if (process.pid)
		return;
	sp = initial_stack() ?: stack_given(argc, argv);
	if (!sp)
		return;
	if (argv + argc != (char **)(sp + 1) + arguments_at(sp) || argc > arguments_at(sp) || !envp)
		envp = (char **)(sp + 1) + arguments_at(sp) + 1;
	path_kept();
	process_started(sp, envp);
	ids_found();
}
