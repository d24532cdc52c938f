// SPDX-License-Identifier: MIT
/* A stub of one's own: every call of a traced function, and every return, as a line on stderr.
 *
 *     gcc $(ftpatch --cflags) calls.c -o calls.elf
 *     ftpatch enable PROG --tracer ./calls.elf -o OUT
 *
 * ftrace_caller() gets the address after the site's call, and the one that the function will return
 * to; ftrace_return(), which may be missing, gets the same. Both are called with all registers saved
 * and not from within themselves. They must do without libc, thread-local storage and vector
 * registers.
 */
typedef unsigned long ulong;

static long write_(int fd, const void *data, ulong size)
{
#if defined(__x86_64__)
	long ret;

	__asm__ volatile("syscall" : "=a"(ret) : "a"(1), "D"(fd), "S"(data), "d"(size)
			 : "rcx", "r11", "memory");
	return ret;
#elif defined(__i386__)
	long ret;

	__asm__ volatile("int $0x80" : "=a"(ret) : "a"(4), "b"(fd), "c"(data), "d"(size) : "memory");
	return ret;
#elif defined(__aarch64__)
	register long x0 __asm__("x0") = fd;
	register const void *x1 __asm__("x1") = data;
	register ulong x2 __asm__("x2") = size;
	register long x8 __asm__("x8") = 64;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x1), "r"(x2), "r"(x8) : "memory");
	return x0;
#endif
}

static char *number(char *end, ulong value)
{
	do
		*--end = "0123456789abcdef"[value & 15];
	while (value >>= 4);
	return end;
}

static void say(char what, ulong ip, ulong parent)
{
	char line[48], *at = line + sizeof(line);

	*--at = '\n';
	at = number(at, parent);
	*--at = ' ';
	at = number(at, ip);
	*--at = ' ';
	*--at = what;
	write_(2, at, line + sizeof(line) - at);
}

__attribute__((visibility("default"))) void ftrace_caller(ulong ip, ulong parent)
{
	say('>', ip, parent);
}

__attribute__((visibility("default"))) void ftrace_return(ulong ip, ulong parent)
{
	say('<', ip, parent);
}
