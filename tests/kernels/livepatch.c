// SPDX-License-Identifier: MIT
/* A live patch of one function. */
#include <linux/livepatch.h>
#include <linux/module.h>
#include <linux/seq_file.h>

static int shown(struct seq_file *m, void *v)
{
	seq_puts(m, "patched\n");
	return 0;
}

static struct klp_func funcs[] = { { .old_name = "cmdline_proc_show", .new_func = shown }, {} };
static struct klp_object objects[] = { { .funcs = funcs }, {} };
static struct klp_patch patch = { .mod = THIS_MODULE, .objs = objects };

static int __init start(void)
{
	return klp_enable_patch(&patch);
}

static void __exit stop(void)
{
}

module_init(start);
module_exit(stop);
MODULE_LICENSE("GPL");
MODULE_INFO(livepatch, "Y");
