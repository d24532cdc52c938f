/* SPDX-License-Identifier: MIT */
/* Headers of ELF files, as <elf.h> has them. */
#ifndef FTPATCH_ELF_H
#define FTPATCH_ELF_H

#include "runtime.h"

#define PT_LOAD 1
#define PT_PHDR 6
#define PF_X 1
#define PF_W 2
#define PF_R 4

#if __SIZEOF_POINTER__ == 4
struct elf_header {
	u8 ident[16];
	u16 type, machine;
	u32 version, entry, phoff, shoff, flags;
	u16 ehsize, phentsize, phnum;
};

struct elf_segment {
	u32 type, offset, address, physical, file_size, size, flags, align;
};
#else
struct elf_header {
	u8 ident[16];
	u16 type, machine;
	u32 version;
	u64 entry, phoff, shoff;
	u32 flags;
	u16 ehsize, phentsize, phnum;
};

struct elf_segment {
	u32 type, flags;
	u64 offset, address, physical, file_size, size, align;
};
#endif

#endif
