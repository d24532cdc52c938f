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
#elif defined(__riscv)
	register long a0 __asm__("a0") = fd;
	register const void *a1 __asm__("a1") = data;
	register ulong a2 __asm__("a2") = size;
	register long a7 __asm__("a7") = 64;

	__asm__ volatile("ecall" : "+r"(a0) : "r"(a1), "r"(a2), "r"(a7) : "memory");
	return a0;
#elif defined(__loongarch_lp64)
	register long a0 __asm__("$a0") = fd;
	register const void *a1 __asm__("$a1") = data;
	register ulong a2 __asm__("$a2") = size;
	register long a7 __asm__("$a7") = 64;

	__asm__ volatile("syscall 0" : "+r"(a0) : "r"(a1), "r"(a2), "r"(a7)
			 : "$t0", "$t1", "$t2", "$t3", "$t4", "$t5", "$t6", "$t7", "$t8", "memory");
	return a0;
#elif defined(__arm__) /* r7 may be the frame pointer */
	register long r0 __asm__("r0") = fd;
	register const void *r1 __asm__("r1") = data;
	register ulong r2 __asm__("r2") = size;

	__asm__ volatile("push {r7}; mov r7, #4; svc #0; pop {r7}" : "+r"(r0) : "r"(r1), "r"(r2) : "memory");
	return r0;
#elif defined(__powerpc64__)
	register long r0 __asm__("r0") = 4;
	register long r3 __asm__("r3") = fd;
	register const void *r4 __asm__("r4") = data;
	register ulong r5 __asm__("r5") = size;

	__asm__ volatile("sc\n\tbns+ 1f\n\tneg 3, 3\n1:" : "+r"(r0), "+r"(r3), "+r"(r4), "+r"(r5)
			 : : "r6", "r7", "r8", "r9", "r10", "r11", "r12", "cr0", "ctr", "memory");
	return r3;
#elif defined(__s390x__)
	register long r1 __asm__("r1") = 4;
	register long r2 __asm__("r2") = fd;
	register const void *r3 __asm__("r3") = data;
	register ulong r4 __asm__("r4") = size;

	__asm__ volatile("svc 0" : "+d"(r2) : "d"(r1), "d"(r3), "d"(r4) : "memory", "cc");
	return r2;
#endif
}

#endif
