// SPDX-License-Identifier: MIT
/* Output without stdio, so that the freestanding programs can have the same. Never traced. */
#include "program.h"

#ifdef FREESTANDING
long sys_write(int fd, const void *bytes, size_t n);
const char *sys_getenv(const char *name);
#define write sys_write
#define getenv sys_getenv
#else
#include <stdlib.h>
#include <unistd.h>
#endif

notrace void say(const char *label, unsigned long value, unsigned int base)
{
	char line[64];
	size_t used = 0, at = sizeof(line);

	while (label[used]) {
		line[used] = label[used];
		used++;
	}
	line[used++] = ':';
	line[used++] = ' ';
	line[--at] = '\n';
	do
		line[--at] = "0123456789abcdef"[value % base];
	while (value /= base);
	while (at < sizeof(line))
		line[used++] = line[at++];
	/* A lost line shows as missing output; there is nobody else to tell. */
	if (write(1, line, used) < 0)
		return;
}

notrace void say_calls(const char *label, unsigned long calls)
{
	if (getenv("SHOW_CALLS"))
		say(label, calls, 10);
}
