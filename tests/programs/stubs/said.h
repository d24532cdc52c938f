/* SPDX-License-Identifier: MIT */
/* What a stub says, without libc. */
#ifndef SAID_H
#define SAID_H

typedef unsigned long ulong;

static inline long said(int fd, const void *data, ulong size)
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

#endif
