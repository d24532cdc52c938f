/* SPDX-License-Identifier: MIT */
/* What the kernel-like images share. The names and attributes are Linux's. */
#ifndef SAMPLES_KERNEL_H
#define SAMPLES_KERNEL_H

#include <stddef.h>
#include <stdint.h>

/* No record and no site: as Linux's notrace, for either way of leaving sites. */
#define notrace __attribute__((no_instrument_function)) \
	__attribute__((patchable_function_entry(0, 0)))
/* With CALL_OPS a literal must be aligned; gcc leaves cold functions out of -falign-functions. */
#ifdef CALL_OPS
#define __aligned_function __attribute__((aligned(8)))
#else
#define __aligned_function
#endif

#define __init __attribute__((section(".init.text"), cold, __noinline__)) __aligned_function
#define __initdata __attribute__((section(".init.data")))
#define __weak __attribute__((weak))
#define __cold __attribute__((cold)) __aligned_function
/* Goes first in .text, its record does not: one way for a table to be unsorted. */
#define __hot __attribute__((hot))
/* Static functions keep their own symbol and site only if gcc neither clones nor folds them. */
#ifdef __clang__
#define own_symbol static __attribute__((__noinline__, used))
#else
#define own_symbol static __attribute__((noipa, used))
#endif
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* One body under two names, as SYSCALL_DEFINEx leaves them. */
#if defined(__x86_64__)
#define SYS(name) __x64_sys_##name
#elif defined(__i386__)
#define SYS(name) __ia32_sys_##name
#elif defined(__riscv)
#define SYS(name) __riscv_sys_##name
#else
#define SYS(name) __arm64_sys_##name
#endif
#define STR_(x) #x
#define STR(x) STR_(x)
#define SYSCALL(name) \
	long SYS(name)(const struct pt_regs *regs) __attribute__((alias(STR(__se_sys_##name)))); \
	long __se_sys_##name(const struct pt_regs *regs)

#define EBADF 9
#define EAGAIN 11
#define ENOMEM 12
#define EINVAL 22
#define ENFILE 23
#define ENOENT 2

#define NR_FILES 16
#define NR_DENTRIES 32
#define NR_TASKS 8
#define NAME_LEN 28
#define FILE_BYTES 64

struct pt_regs {
	unsigned long arg[6];
};

struct inode {
	uint32_t size;
	uint8_t data[FILE_BYTES];
};

struct dentry {
	uint32_t hash;
	char name[NAME_LEN];
	struct inode *inode;
};

struct file {
	struct dentry *dentry;
	uint32_t pos;
	uint32_t mode;
};

struct task_struct {
	int pid;
	int prio;
	uint64_t runtime;
	struct task_struct *next;
};

/* fs/ */
__hot long vfs_read(struct file *file, char *buf, size_t count, uint32_t *pos);
long vfs_write(struct file *file, const char *buf, size_t count, uint32_t *pos);
int vfs_open(const char *name, struct file *file);
int vfs_fsync(struct file *file);
long ksys_read(unsigned int fd, char *buf, size_t count);
long ksys_write(unsigned int fd, const char *buf, size_t count);
long do_sys_open(const char *name, uint32_t mode);
__hot struct file *fget(unsigned int fd);
void fput(struct file *file);
__hot struct dentry *d_lookup(const char *name, uint32_t hash);
struct dentry *d_alloc(const char *name, uint32_t hash);
struct dentry *path_lookup(const char *path, int create);
uint32_t full_name_hash(const char *name);

/* kernel/ */
__hot void schedule(void);
void enqueue_task(struct task_struct *p);
void dequeue_task(struct task_struct *p);
int wake_up_process(struct task_struct *p);
struct task_struct *kernel_thread(int prio);
uint64_t sched_clock(void);
void panic(const char *why) __cold __attribute__((noreturn));
void warn_slowpath(const char *why) __cold;
int do_softirq(unsigned int pending);
void arch_cpu_idle(void);
void arch_show_mem(uint32_t *total);
unsigned long arch_randomize_brk(unsigned long brk);

/* lib/ */
void *memcpy(void *to, const void *from, size_t n);
void *memset(void *to, int c, size_t n);
int strcmp(const char *a, const char *b);
void sort(uint32_t *base, size_t n);
__hot uint32_t crc32_le(uint32_t crc, const uint8_t *p, size_t n);

extern const char linux_banner[];
extern uint32_t taint;
void start_kernel(void);
void cpu_halt(void);

#endif
