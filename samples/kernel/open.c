// SPDX-License-Identifier: MIT
#include "kernel.h"

static struct file files[NR_FILES];

/* namei.c has a static function of this name too. */
own_symbol int find_slot(void)
{
	for (int i = 0; i < NR_FILES; i++)
		if (!files[i].dentry)
			return i;
	return -ENFILE;
}

struct file *fget(unsigned int fd)
{
	if (fd >= NR_FILES || !files[fd].dentry)
		return NULL;
	files[fd].mode += 0x100;
	return &files[fd];
}

void fput(struct file *file)
{
	file->mode -= 0x100;
}

int vfs_open(const char *name, struct file *file)
{
	struct dentry *dentry = path_lookup(name, (file->mode & 1) != 0);

	if (!dentry)
		return -ENOENT;
	file->dentry = dentry;
	file->pos = 0;
	return 0;
}

long do_sys_open(const char *name, uint32_t mode)
{
	int fd = find_slot();
	int err;

	if (fd < 0)
		return fd;
	files[fd].mode = mode & 0xff;
	err = vfs_open(name, &files[fd]);
	return err ? err : fd;
}

SYSCALL(open)
{
	return do_sys_open((const char *)regs->arg[0], (uint32_t)regs->arg[1]);
}
