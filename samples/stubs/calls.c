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
#elif defined(__arm__)
	register long r0 __asm__("r0") = fd;
	register const void *r1 __asm__("r1") = data;
	register ulong r2 __asm__("r2") = size;
	register long r7 __asm__("r7") = 4;

	__asm__ volatile("svc 0" : "+r"(r0) : "r"(r1), "r"(r2), "r"(r7) : "memory");
	return r0;
#elif defined(__riscv) || defined(__loongarch__)
	register long a0 __asm__("a0") = fd;
	register const void *a1 __asm__("a1") = data;
	register ulong a2 __asm__("a2") = size;
	register long a7 __asm__("a7") = 64;

#ifdef __riscv
	__asm__ volatile("ecall" : "+r"(a0) : "r"(a1), "r"(a2), "r"(a7) : "memory");
#else
	__asm__ volatile("syscall 0" : "+r"(a0) : "r"(a1), "r"(a2), "r"(a7)
			 : "memory", "t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8");
#endif
	return a0;
#elif defined(__s390x__)
	register long r2 __asm__("2") = fd;
	register const void *r3 __asm__("3") = data;
	register ulong r4 __asm__("4") = size;

	__asm__ volatile("svc 4" : "+d"(r2) : "d"(r3), "d"(r4) : "memory", "cc");
	return r2;
#elif defined(__powerpc64__)
	register long r0 __asm__("r0") = 4;
	register long r3 __asm__("r3") = fd;
	register const void *r4 __asm__("r4") = data;
	register ulong r5 __asm__("r5") = size;

	__asm__ volatile("sc" : "+r"(r0), "+r"(r3), "+r"(r4), "+r"(r5) : : "memory", "cr0", "ctr",
			 "r6", "r7", "r8", "r9", "r10", "r11", "r12");
	return r3;
#else
#error "write(2) of this architecture is not known here"
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
