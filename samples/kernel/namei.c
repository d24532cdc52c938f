// SPDX-License-Identifier: MIT
#include "kernel.h"

static struct dentry dentries[NR_DENTRIES];
static struct inode inodes[NR_DENTRIES];

/* open.c has a static function of this name too. */
own_symbol int find_slot(uint32_t hash)
{
	for (uint32_t i = 0; i < NR_DENTRIES; i++) {
		uint32_t at = (hash + i) % NR_DENTRIES;

		if (!dentries[at].inode || dentries[at].hash == hash)
			return (int)at;
	}
	return -ENOMEM;
}

uint32_t full_name_hash(const char *name)
{
	uint32_t hash = 2166136261u;

	while (*name)
		hash = (hash ^ (uint8_t)*name++) * 16777619u;
	return hash;
}

struct dentry *d_lookup(const char *name, uint32_t hash)
{
	int at = find_slot(hash);

	if (at < 0 || !dentries[at].inode || strcmp(dentries[at].name, name))
		return NULL;
	return &dentries[at];
}

struct dentry *d_alloc(const char *name, uint32_t hash)
{
	int at = find_slot(hash);
	size_t i;

	if (at < 0)
		return NULL;
	for (i = 0; i < NAME_LEN - 1 && name[i]; i++)
		dentries[at].name[i] = name[i];
	dentries[at].name[i] = 0;
	dentries[at].hash = hash;
	dentries[at].inode = &inodes[at];
	return &dentries[at];
}

own_symbol const char *link_path_walk(const char *path)
{
	const char *last = path;

	for (; *path; path++)
		if (*path == '/')
			last = path + 1;
	return last;
}

struct dentry *path_lookup(const char *path, int create)
{
	const char *name = link_path_walk(path);
	uint32_t hash = full_name_hash(name);
	struct dentry *dentry = d_lookup(name, hash);

	return dentry || !create ? dentry : d_alloc(name, hash);
}
