// SPDX-License-Identifier: MIT
/*
 * The start of the programs that are linked without libc: it relocates the program if it was
 * loaded elsewhere (static-PIE), finds the environment, calls main, exits. Never traced.
 */
#include <elf.h>

#include "program.h"

#if __SIZEOF_POINTER__ == 8
typedef Elf64_Dyn dyn_t;
typedef Elf64_Rela rel_t;
#define REL_TABLE DT_RELA
#define REL_SIZE DT_RELASZ
#define REL_TYPE(info) ELF64_R_TYPE(info)
#else
typedef Elf32_Dyn dyn_t;
typedef Elf32_Rel rel_t;
#define REL_TABLE DT_REL
#define REL_SIZE DT_RELSZ
#define REL_TYPE(info) ELF32_R_TYPE(info)
#endif

#if defined(__x86_64__)
#define RELATIVE R_X86_64_RELATIVE
#elif defined(__i386__)
#define RELATIVE R_386_RELATIVE
#elif defined(__riscv)
#define RELATIVE R_RISCV_RELATIVE
#else
#define RELATIVE R_AARCH64_RELATIVE
#endif

/* From the linker. Hidden: they must be found without the GOT, which is not relocated yet. */
extern dyn_t _DYNAMIC[] __attribute__((visibility("hidden")));
extern char __ehdr_start[] __attribute__((visibility("hidden")));

int main(void);
long sys_write(int fd, const void *bytes, size_t n);
void sys_exit(int status) __attribute__((noreturn));
const char *sys_getenv(const char *name);
void start_c(unsigned long *stack) __attribute__((noreturn));

static char **environment;

#ifdef STATIC_PIE
static notrace void relocate(void)
{
	uintptr_t base = (uintptr_t)__ehdr_start;
	rel_t *table = NULL;
	size_t size = 0;

	for (dyn_t *d = _DYNAMIC; d->d_tag != DT_NULL; d++) {
		if (d->d_tag == REL_TABLE)
			table = (rel_t *)(base + d->d_un.d_ptr);
		if (d->d_tag == REL_SIZE)
			size = d->d_un.d_val;
	}
	for (rel_t *r = table; r < table + size / sizeof(*r); r++)
		if (REL_TYPE(r->r_info) == RELATIVE)
#if __SIZEOF_POINTER__ == 8
			*(uintptr_t *)(base + r->r_offset) = base + (uintptr_t)r->r_addend;
#else
			*(uintptr_t *)(base + r->r_offset) += base;
#endif
}
#endif

notrace const char *sys_getenv(const char *name)
{
	for (char **entry = environment; *entry; entry++) {
		const char *e = *entry, *n = name;

		while (*n && *n == *e)
			n++, e++;
		if (!*n && *e == '=')
			return e + 1;
	}
	return NULL;
}

notrace void start_c(unsigned long *stack)
{
#ifdef STATIC_PIE
	relocate();
#endif
	/* argc, argv[argc], null, the environment */
	environment = (char **)(stack + stack[0] + 2);
	sys_exit(main());
}

/* The compiler may call these itself. */
void *memcpy(void *to, const void *from, size_t n);
void *memset(void *to, int c, size_t n);

notrace void *memcpy(void *to, const void *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((char *)to)[i] = ((const char *)from)[i];
	return to;
}

notrace void *memset(void *to, int c, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((char *)to)[i] = (char)c;
	return to;
}
