// SPDX-License-Identifier: MIT
#include "kernel.h"

const char linux_banner[] __attribute__((section(".rodata.banner"), used)) =
	"Linux version " KERNEL_RELEASE " (samples@ftpatch) (" KERNEL_COMPILER ") #1 SMP\n";

typedef int (*initcall_t)(void);

int __init proc_init(void)
{
	return do_sys_open("/proc/self/maps", 1) < 0;
}

int __init sched_init(void)
{
	struct task_struct *p = kernel_thread(120);

	if (!p)
		return -ENOMEM;
	return !wake_up_process(p);
}

static initcall_t initcalls[] __initdata = { proc_init, sched_init };

static int __init do_initcalls(void)
{
	int failed = 0;

	for (size_t i = 0; i < sizeof(initcalls) / sizeof(*initcalls); i++)
		failed += initcalls[i]() != 0;
	return failed;
}

void __init start_kernel(void)
{
	uint32_t total, order[4] = { 3, 1, 2, 0 };
	char line[16];

	arch_show_mem(&total);
	if (do_initcalls())
		panic("initcall failed");
	sort(order, 4);
	ksys_write(0, linux_banner, 14);
	ksys_read(0, line, sizeof(line));
	vfs_fsync(fget(0));
	do_softirq((unsigned int)arch_randomize_brk(total) | order[3]);
	for (;;)
		schedule();
}
