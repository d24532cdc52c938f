// SPDX-License-Identifier: MIT
/* Text without libc: file names, the environment, messages to the user. */
#include "text.h"

#define SIGPIPE 13 /* on every architecture */
#define SIGXFSZ 25

ulong length(const char *text)
{
	ulong n = 0;

	while (text[n])
		n++;
	return n;
}

/* Append text, to at most `size` bytes including the NUL; 0 if it does not fit. */
int append(char *to, ulong size, const char *text)
{
	ulong at = length(to), n = length(text), i;

	if (at + n + 1 > size)
		return 0;
	for (i = 0; i <= n; i++)
		to[at + i] = text[i];
	return 1;
}

int append_number(char *to, ulong size, u32 number)
{
	char digits[12];
	int i = sizeof(digits) - 1;

	digits[i] = 0;
	do
		digits[--i] = '0' + number % 10;
	while (number /= 10);
	return append(to, size, digits + i);
}

const char *environment(char **envp, const char *name)
{
	ulong n, i;

	for (n = 0; name[n]; n++)
		;
	for (; *envp; envp++) {
		for (i = 0; i < n && (*envp)[i] == name[i]; i++)
			;
		if (i == n && (*envp)[n] == '=')
			return *envp + n + 1;
	}
	return 0;
}

/* Print "ftpatch: VARIABLE=VALUE: WHAT" to standard error, in a single write, before the program's
 * own output. */
void say(const char *variable, const char *value, const char *what)
{
	struct {
		ulong handler, flags, restorer;
		u64 mask;
	} ignored = {1 /* SIG_IGN */, 0, 0, 0}, pipe = {0, 0, 0, 0}, large = {0, 0, 0, 0};
	char line[512];

	if (ftpatch_config.flags & TRACE_ATTACHED) /* whoever attached sees what is missing */
		return;
	line[0] = 0;
	append(line, sizeof(line), "ftpatch: ");
	if (variable) {
		append(line, sizeof(line), variable);
		append(line, sizeof(line), "=");
		if (!append(line, sizeof(line) - 128, value))
			append(line, sizeof(line), "...");
		append(line, sizeof(line), ": ");
	}
	append(line, sizeof(line), what);
	append(line, sizeof(line), "\n");
	/* A closed pipe, or a file at its size limit, must not kill the program. */
	syscall6(SYS_rt_sigaction, SIGPIPE, (long)&ignored, (long)&pipe, sizeof(pipe.mask), 0, 0);
	syscall6(SYS_rt_sigaction, SIGXFSZ, (long)&ignored, (long)&large, sizeof(large.mask), 0, 0);
	syscall6(SYS_write, 2, (long)line, (long)length(line), 0, 0, 0);
	syscall6(SYS_rt_sigaction, SIGXFSZ, (long)&large, 0, sizeof(large.mask), 0, 0);
	syscall6(SYS_rt_sigaction, SIGPIPE, (long)&pipe, 0, sizeof(pipe.mask), 0, 0);
}
