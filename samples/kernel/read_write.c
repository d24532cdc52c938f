// SPDX-License-Identifier: MIT
#include "kernel.h"

own_symbol long rw_verify_area(const struct file *file, uint32_t pos, size_t count)
{
	if (unlikely(!file->dentry))
		return -EBADF;
	if (unlikely(pos > FILE_BYTES || count > FILE_BYTES))
		return -EINVAL;
	return pos + count > FILE_BYTES ? (long)(FILE_BYTES - pos) : (long)count;
}

long vfs_read(struct file *file, char *buf, size_t count, uint32_t *pos)
{
	struct inode *inode;
	long n = rw_verify_area(file, *pos, count);

	if (n <= 0)
		return n;
	inode = file->dentry->inode;
	if (*pos >= inode->size)
		return 0;
	if (*pos + (uint32_t)n > inode->size)
		n = (long)(inode->size - *pos);
	memcpy(buf, inode->data + *pos, (size_t)n);
	*pos += (uint32_t)n;
	return n;
}

long vfs_write(struct file *file, const char *buf, size_t count, uint32_t *pos)
{
	struct inode *inode;
	long n = rw_verify_area(file, *pos, count);

	if (n <= 0)
		return n;
	inode = file->dentry->inode;
	memcpy(inode->data + *pos, buf, (size_t)n);
	*pos += (uint32_t)n;
	if (*pos > inode->size)
		inode->size = *pos;
	return n;
}

int vfs_fsync(struct file *file)
{
	struct inode *inode = file->dentry->inode;

	/* The rare branch: gcc moves it out of line, into vfs_fsync.cold in .text.unlikely. */
	if (unlikely(inode->size > FILE_BYTES)) {
		taint |= 1u << (inode->size & 7);
		warn_slowpath("inode larger than its data");
		inode->size = FILE_BYTES;
		return -EINVAL;
	}
	return (int)(crc32_le(~0u, inode->data, inode->size) & 0x7fffffff);
}

long ksys_read(unsigned int fd, char *buf, size_t count)
{
	struct file *file = fget(fd);
	long n;

	if (!file)
		return -EBADF;
	n = vfs_read(file, buf, count, &file->pos);
	fput(file);
	return n;
}

long ksys_write(unsigned int fd, const char *buf, size_t count)
{
	struct file *file = fget(fd);
	long n;

	if (!file)
		return -EBADF;
	n = vfs_write(file, buf, count, &file->pos);
	fput(file);
	return n;
}

SYSCALL(read)
{
	return ksys_read((unsigned int)regs->arg[0], (char *)regs->arg[1], regs->arg[2]);
}

SYSCALL(write)
{
	return ksys_write((unsigned int)regs->arg[0], (const char *)regs->arg[1], regs->arg[2]);
}
