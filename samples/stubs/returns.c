// SPDX-License-Identifier: MIT
/* A handler of one's own for return probes: an error becomes zero, and how often is counted.
 *
 *     gcc -O2 -shared -fPIC -nostdlib -ffreestanding -mgeneral-regs-only -fno-stack-protector \
 *         -fcf-protection=none -Wl,-Bsymbolic returns.c -o returns.elf
 *     ftpatch probe PROG 'r FUNC $retval:s64' --handler returns.elf:forgiving -o OUT
 *
 * -mgeneral-regs-only is of x86, arm64 and arm. On riscv64 it is compiled with -march=rv64ima -mabi=lp64 in
 * its place, on loongarch64 with -mabi=lp64s, on s390x and ppc64le with -msoft-float.
 *
 * It is called before the values are fetched, with the instance and the registers, which it may
 * change; of a p probe the same, with 0 in `ret`. It must do without libc, thread-local storage and
 * vector registers. What it calls itself is not probed.
 */
typedef unsigned long ulong;

struct instance {
	unsigned long long probe; /* its number, in the order of the report */
	unsigned long long ip;    /* of the probed function */
	ulong ret;                /* where the function returns to */
	ulong stack;              /* where that stood; on arm64 the stack pointer on entry */
	unsigned long long ticks; /* since it was entered */
};

#if defined(__x86_64__)
struct registers {
	long general[16]; /* ax cx dx bx sp bp si di r8 ... r15 */
	ulong flags;
};
#define RESULT general[0]
#elif defined(__i386__)
struct registers {
	long general[8]; /* ax cx dx bx sp bp si di */
	ulong flags;
};
#define RESULT general[0]
#elif defined(__aarch64__)
struct registers {
	long x[31];
	ulong sp, flags;
};
#define RESULT x[0]
#elif defined(__riscv)
struct registers {
	long x[32];
};
#define RESULT x[10]
#elif defined(__loongarch_lp64)
struct registers {
	long r[32];
};
#define RESULT r[4]
#elif defined(__s390x__)
struct registers {
	long r[16];
};
#define RESULT r[2]
#elif defined(__powerpc64__)
struct registers {
	long r[32];
};
#define RESULT r[3]
#elif defined(__arm__)
struct registers {
	long r[15];
	ulong flags;
};
#define RESULT r[0]
#endif

__attribute__((visibility("default"))) void forgiving(const struct instance *instance,
						      struct registers *registers)
{
	if (instance->ret && (int)registers->RESULT < 0) /* of an int, the rest is anything */
		registers->RESULT = 0;
}
