// SPDX-License-Identifier: MIT
/* Watched variables of libraries: before the program runs, find the library in the linker's list, and the
 * variable that it has been bound to, its own or another one that takes its place, in its GOT. */
#include "link_map.h"
#include "watch.h"

#define LONGEST 65536 /* maximum entries of the linker's list to examine */

u64 watch_above[WATCHES];

static int is_it(const struct watched_library *library, ulong bias)
{
	const u8 *id = (const u8 *)(ulong)(library->place + bias);
	u32 i;

	if (!readable((ulong)id) || !readable((ulong)id + 16))
		return 0;
	for (i = 0; i < sizeof(library->id); i++)
		if (id[i] != library->id[i])
			return 0;
	return 1;
}

/* 0 for a variable of a library that is not there, or is another one. */
int watch_found(u32 number)
{
	const struct watched_library *library = laid_library(number);
	const struct link_map *map;
	const struct r_debug *debug;
	u64 own = laid_watch(number)->address & ((1ull << WATCH_LIBRARY) - 1);
	u32 steps = 0;

	if (!library || !library->dynamic)
		return 1;
	if (!ftpatch_config.debug)
		return 0;
	/* The linker fills in DT_DEBUG's value in the program's dynamic table. */
	debug = *(struct r_debug **)(ulong)(ftpatch_config.debug + process.bias);
	for (map = debug ? debug->map : 0; map && steps < LONGEST; map = map->next, steps++) {
		if (map->dynamic - map->bias != (ulong)library->dynamic || !is_it(library, map->bias))
			continue;
		if (library->slot)
			own += *(const ulong *)(ulong)(library->slot + map->bias) - library->bound;
		else
			own += map->bias;
		watch_above[number] = own - process.bias - laid_watch(number)->address;
		return 1;
	}
	return 0;
}
