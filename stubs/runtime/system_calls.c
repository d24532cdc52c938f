// SPDX-License-Identifier: MIT
/* Finds the system calls in everything loaded, and redirects them. No executable page is ever
 * writable: a copy is changed, and replaces the page at once.
 *
 *     libc      mov eax, 13; syscall     ->  jmp stub; syscall
 *     stub      mov eax, 13; call ftrace_asked; jmp syscall, or past it
 *
 * A library opened later is caught where the linker notifies debuggers of it. */
#include "elf.h"
#include "libraries.h"
#include "system_calls.h"

#define PROT_NONE 0
#define PROT_RX 5
#define MAP_PRIVATE 2
#define MAP_FIXED 0x10
#define MAP_ANONYMOUS 0x20
#define MREMAP_TO 3 /* MREMAP_MAYMOVE | MREMAP_FIXED */
#define MFD_CLOEXEC 1
#define RT_CONSISTENT 0
#define CALLS 512       /* per segment */
#define OBJECTS 1024
#define STEP 0x100000ul /* bytes: granularity of the search for free space */
#define STEPS 16

#ifndef FILE_OFFSET
#define FILE_OFFSET(bytes) (bytes) /* of mmap() */
#endif

#define LIBRARY_PATH 256 /* maximum length of a library's path */

static struct lead leads[CALLS];
static ulong objects[OBJECTS]; /* biases of those that are done */
static u32 object_count;
static ulong met;      /* bias of the one being examined */
static struct room {
	ulong bias, at, size;
} rooms[OBJECTS];      /* of stubs, and the object they belong to */
static u32 room_count;
static int leading;    /* calls are redirected, not just objects recorded */
static char told[TRACE_HEADER - sizeof(struct trace_header)]; /* structs trace_library, for the header */
static u32 told_size;

static void copy(u8 *to, const u8 *from, ulong size)
{
	for (; size; size--) {
		*to++ = *from++;
		barrier(); /* else gcc calls memcpy */
	}
}

/* Free pages that a segment's jumps can reach. */
static ulong room_beside(ulong low, ulong high, ulong size)
{
	ulong at, found, first, last;
	u32 i;

	for (i = 1; i <= 2 * STEPS; i++) {
		at = (i <= STEPS ? low - i * STEP : high + (i - STEPS) * STEP) & -process.page;
		if (i <= STEPS && at >= low)
			continue;
		found = mmap_(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
		if (failed((long)found))
			continue;
		first = found < low ? found : low;
		last = found + size > high ? found + size : high;
		if (last - first < LEAD_REACH)
			return found;
		syscall6(SYS_munmap, (long)found, (long)size, 0, 0, 0, 0);
	}
	return 0;
}

/* Move pages of `scratch`, which the file `fd` has as well, into place. */
static int placed(u8 *scratch, ulong offset, ulong size, ulong at, long fd)
{
	long ret = -1;

	if (!failed(fd))
		ret = syscall6(SYS_mmap, (long)at, (long)size, PROT_RX, MAP_PRIVATE | MAP_FIXED, fd,
			       (long)FILE_OFFSET(offset));
	if (failed(ret) && !syscall6(SYS_mprotect, (long)scratch + (long)offset, (long)size, PROT_RX,
				     0, 0, 0))
		ret = syscall6(SYS_mremap, (long)scratch + (long)offset, (long)size, (long)size,
			       MREMAP_TO, (long)at, 0);
	return !failed(ret);
}

static int written(long fd, const u8 *from, ulong size)
{
	long done;

	for (; size; from += done, size -= (ulong)done) {
		done = syscall6(SYS_write, fd, (long)from, (long)size, 0, 0, 0);
		if (failed(done) || !done)
			return 0;
	}
	return 1;
}

/* `count` leads, by address; `linker`: the first is the linker's breakpoint. */
static void led(u32 count, ulong low, ulong high, u32 linker)
{
	ulong page = process.page, stubs = (count * LEAD_STUB + page - 1) & -page, beside, size, at;
	u32 i, pages = 0;
	u64 limit[2] = {0, 0};
	u8 *scratch, *to;
	long fd;

	/* Pages to change: the last one of a lead may be the first of the next. */
	for (i = 0, at = 0; i < count; i++) {
		ulong first = (ulong)leads[i].from & -page;
		ulong last = ((ulong)leads[i].from + LEAD_JUMP - 1) & -page;

		pages += (first != at) + (last != first);
		at = last;
	}
	size = stubs + pages * page;
	beside = room_beside(low, high, stubs);
	scratch = (u8 *)mmap_(0, size, PROT_RW, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	if (!beside || failed((long)scratch))
		return;
	to = scratch + stubs - page;
	for (i = 0, at = 0; i < count; i++) {
		ulong stub = i * LEAD_STUB, from = (ulong)leads[i].from, piece;
		u8 jump[LEAD_JUMP];
		u32 n;

		if (i || !linker)
			lead_stub(scratch + stub, beside + stub, &leads[i]);
		else
			lead_linker(scratch + stub, leads[i].from);
		lead_jump(jump, from, beside + stub);
		for (n = 0; n < LEAD_JUMP; n++) {
			piece = (from + n) & -page;
			if (piece != at) {
				at = piece;
				to += page;
				copy(to, (const u8 *)piece, page);
			}
			to[from + n - piece] = jump[n];
		}
	}
	/* Exceeding the file size limit would raise a signal. */
	file_limit(limit);
	fd = limit[0] < size ? -1 :
			       syscall6(SYS_memfd_create, (long)"ftpatch", MFD_CLOEXEC, 0, 0, 0, 0);
	if (!failed(fd) && !written(fd, scratch, size)) {
		syscall6(SYS_close, fd, 0, 0, 0, 0, 0);
		fd = -1;
	}
	if (placed(scratch, 0, stubs, beside, fd)) {
		ulong offset = stubs;

		if (room_count < OBJECTS) {
			rooms[room_count].bias = met;
			rooms[room_count].at = beside;
			rooms[room_count++].size = stubs;
		}
		for (i = 0, at = 0; i < count; i++) {
			ulong from = (ulong)leads[i].from, piece = from & -page;

			for (; piece < from + LEAD_JUMP; piece += page) {
				if (piece == at)
					continue;
				at = piece;
				placed(scratch, offset, page, piece, fd);
				offset += page;
			}
		}
	}
	if (!failed(fd))
		syscall6(SYS_close, fd, 0, 0, 0, 0, 0);
	syscall6(SYS_munmap, (long)scratch, (long)size, 0, 0, 0, 0);
}

static void segment_led(ulong low, ulong high)
{
	const u8 *at = (const u8 *)low;
	u32 count = 0;

	while (count < CALLS && lead_found((const u8 *)low, (const u8 *)high, &at, &leads[count]))
		count++;
	if (count)
		led(count, low, high, 0);
}

static void segments_led(const struct elf_segment *segment, ulong count, ulong bias)
{
	ulong low, high, own = (ulong)&ftpatch_config;

	for (; count; count--, segment++) {
		low = bias + segment->address;
		high = low + segment->file_size;
		if (segment->type == PT_LOAD && (segment->flags & (PF_X | PF_W)) == PF_X &&
		    !(own >= low && own < high))
			segment_led(low, high);
	}
}

/* Add it to the table of names, with its code's location. If there is no room, it goes unnamed. */
static void object_noted(const struct link_map *map, const struct elf_segment *segment, ulong count)
{
	struct trace_library *library = (struct trace_library *)(told + told_size);
	u64 low = ~0ull, high = 0;
	u32 size, i;

	for (i = 0; i < told_size; i += ((struct trace_library *)(told + i))->length)
		if (((struct trace_library *)(told + i))->bias == map->bias)
			return;
	for (i = 0; i < count; i++)
		if (segment[i].type == PT_LOAD && segment[i].flags & PF_X) {
			low = segment[i].address < low ? segment[i].address : low;
			if (segment[i].address + segment[i].file_size > high)
				high = segment[i].address + segment[i].file_size;
		}
	for (size = 0; map->name && size < LIBRARY_PATH && map->name[size]; size++)
		;
	if (high <= low || !size || size == LIBRARY_PATH ||
	    sizeof(*library) + size + 8 > sizeof(told) - told_size)
		return;
	library->size = high - low;
	library->base = low;
	library->bias = map->bias;
	copy((u8 *)library->path, (const u8 *)map->name, size);
	library->length = (sizeof(*library) + size + 8) & ~7u;
	told_size += library->length;
	if (process.header)
		objects_told(process.header);
}

void objects_told(struct trace_header *header)
{
	copy((u8 *)header->libraries, (const u8 *)told, told_size);
}

static void object_met(const struct link_map *map)
{
	const struct elf_header *header = (const struct elf_header *)map->bias;
	const struct elf_segment *segments;

	if (!map->bias || map->bias % process.page || !readable(map->bias) ||
	    header->ident[0] != 0x7f || header->ident[1] != 'E' || header->ident[2] != 'L' ||
	    header->ident[3] != 'F' || header->phentsize != sizeof(struct elf_segment))
		return;
	segments = (const struct elf_segment *)(map->bias + header->phoff);
	object_noted(map, segments, header->phnum);
	met = map->bias;
	if (leading)
		segments_led(segments, header->phnum, map->bias);
}

/* An object was unmapped, and with it everything that leads to its stubs: a program may open and
 * close it forever. */
static void object_gone(ulong bias)
{
	u32 i;

	for (i = 0; i < room_count; i++)
		if (rooms[i].bias == bias) {
			syscall6(SYS_munmap, (long)rooms[i].at, (long)rooms[i].size, 0, 0, 0, 0);
			rooms[i].at = rooms[--room_count].at;
			rooms[i].size = rooms[room_count].size;
			rooms[i--].bias = rooms[room_count].bias;
		}
}

static struct r_debug *linker(void)
{
	return ftpatch_config.debug ? *(struct r_debug **)(ulong)(ftpatch_config.debug + process.bias)
				    : 0;
}

static int is_listed(ulong bias)
{
	struct r_debug *debug;
	struct link_map *map;

	for (debug = linker(); debug; debug = debug->version > 1 ? debug->next : 0)
		for (map = debug->map; map; map = map->next)
			if (map->bias == bias)
				return 1;
	return 0;
}

/* Examine everything in the linker's list that is new. The program itself comes first. */
static void objects_met(void)
{
	struct r_debug *debug;
	struct link_map *map;
	u32 i;

	for (i = 0; i < object_count; i++)
		if (!is_listed(objects[i])) {
			object_gone(objects[i]);
			objects[i--] = objects[--object_count];
		}
	for (debug = linker(); debug; debug = debug->version > 1 ? debug->next : 0)
		for (map = debug->map; map; map = map->next) {
			for (i = 0; i < object_count && objects[i] != map->bias; i++)
				;
			if (map->bias == process.bias || i < object_count || i == OBJECTS)
				continue;
			objects[object_count++] = map->bias;
			object_met(map);
		}
}

/* The linker calls this before and after it changes its list. */
LANDING REGISTERS void ftrace_linked(void)
{
	struct r_debug *debug;

	for (debug = linker(); debug; debug = debug->version > 1 ? debug->next : 0)
		if (debug->state != RT_CONSISTENT)
			return;
	objects_met();
}

void objects_found(void)
{
	objects_met();
}

void calls_led(void)
{
	struct r_debug *debug = linker();
	u8 unused[LEAD_STUB];

	met = 0;
	if (process.phdr)
		segments_led((const struct elf_segment *)process.phdr, process.phnum, process.bias);
	if (!debug)
		return;
	leading = 1;
	object_count = 0;
	objects_met();
	met = 0;
	leads[0].from = (const u8 *)debug->brk;
	if (debug->brk && lead_linker(unused, leads[0].from))
		led(1, debug->brk, debug->brk + LEAD_JUMP, 1);
}
