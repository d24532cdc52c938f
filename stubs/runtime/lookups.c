// SPDX-License-Identifier: MIT
/* What unwinders look up in a running process: see lookups.h. */
#include "lookups.h"

#define PT_LOAD 1
#define PT_GNU_EH_FRAME 0x6474e550
#define READ_EXECUTE 5 /* PF_R | PF_X */

/* struct dl_find_object, where processors have 64 bits, as far as unwinders use it. */
struct found {
	unsigned long long flags;
	ulong start, end; /* of the mapping */
	void *map;        /* struct link_map */
	ulong table;      /* .eh_frame_hdr */
};

/* Elf64_Phdr */
struct segment {
	u32 type, flags;
	ulong offset, address, physical, file_size, size, align;
};

/* struct dl_phdr_info */
struct object {
	ulong address;
	const char *name;
	const struct segment *segments;
	unsigned short count;
	unsigned long long adds, subs;
};

/* Without adds and subs, so that nobody remembers it for later, when it may be gone. */
#define OBJECT_SIZE __builtin_offsetof(struct object, adds)

typedef int each_object(struct object *object, ulong size, void *data);

/* ftpatch fills it in: neither constant nor zero. */
volatile struct lookups ftpatch_lookups __attribute__((section(".data"), used, visibility("hidden")));

static inline void asked(void)
{
	if (!ftpatch_lookups.asked)
		ftpatch_lookups.asked = 1;
}

/* In place of _dl_find_object(). It leaves nothing on the stack where it calls that. */
int ftpatch_find_object(ulong address, struct found *found)
{
	u32 i;

	asked();
	for (i = 0; i < ftpatch_lookups.count; i++) {
		volatile struct looked_up *area = &ftpatch_lookups.area[i];

		if (address < area->low || address >= area->high)
			continue;
		found->flags = 0;
		found->start = (ulong)area->low;
		found->end = (ulong)area->high;
		found->map = 0;
		found->table = (ulong)area->table;
		return 0;
	}
	return ((int (*)(ulong, struct found *))(ulong)ftpatch_lookups.find_object)(address, found);
}

/* In place of dl_iterate_phdr(). Ours come last: the first object is taken for the program. */
int ftpatch_iterate_phdr(each_object *each, void *data)
{
	struct segment segments[2];
	struct object object;
	int result;
	u32 i;

	asked();
	result = ((int (*)(each_object *, void *))(ulong)ftpatch_lookups.iterate_phdr)(each, data);
	for (i = 0; !result && i < ftpatch_lookups.count; i++) {
		volatile struct looked_up *area = &ftpatch_lookups.area[i];

		segments[0] = (struct segment){.type = PT_LOAD, .flags = READ_EXECUTE, .align = PAGE};
		segments[0].file_size = segments[0].size = (ulong)(area->high - area->low);
		segments[1] = (struct segment){.type = PT_GNU_EH_FRAME, .flags = READ_EXECUTE, .align = 4};
		segments[1].offset = segments[1].address = (ulong)(area->table - area->low);
		segments[1].file_size = segments[1].size = (ulong)(area->high - area->table);
		object.address = (ulong)area->low;
		object.name = "[ftpatch]";
		object.segments = segments;
		object.count = 2;
		object.adds = object.subs = ~0ull; /* none that is real, should they be read */
		result = each(&object, OBJECT_SIZE, data);
	}
	return result;
}
