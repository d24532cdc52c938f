// SPDX-License-Identifier: MIT
/* Libraries with probes: before the program runs, find them in the linker's list, give the program's
 * tables their addresses, and connect them.
 *
 *     probe_place.address     link address of the library  ->  as far from the program's link addresses
 *     trace_probe.ip                                            as the library is from it in memory
 *     fetch.value of FETCH_ADDRESS
 */
#include "libraries.h"
#include "probes.h"

#define LONGEST 65536 /* maximum entries of the linker's list to examine */

/* What a library's detours go on to, at entries and elsewhere. */
#ifndef LIBRARY_CALLER
#define LIBRARY_CALLER ftrace_caller
#define LIBRARY_REGS_CALLER ftrace_regs_caller
#endif
void LIBRARY_CALLER(void) __attribute__((visibility("hidden")));
void LIBRARY_REGS_CALLER(void) __attribute__((visibility("hidden")));

static struct probed_library *first(void)
{
	return (struct probed_library *)(ulong)(ftpatch_config.libraries + process.bias);
}

/* The tables are writable only in a program whose libraries have probes. */
static void probe_moved(u32 number, u64 delta)
{
	const struct probe *probe = probe_at(number);
	struct trace_probe *told = (struct trace_probe *)linked(struct trace_probe, probe_table()->told);
	struct fetch *fetch = (struct fetch *)linked(struct fetch, probe_table()->fetches) + probe->fetch;
	u32 i;

	told[number].ip = (ulong)(told[number].ip + delta);
	for (i = 0; i < probe->filter + probe->fetches + probe->hist; i++)
		if (fetch[i].op == FETCH_ADDRESS)
			fetch[i].value += (s64)delta;
}

static void places_moved(const struct probed_library *library, u64 delta)
{
	struct probe_place *place = (struct probe_place *)linked(struct probe_place, probe_table()->places) +
				    library->first;
	u32 i, n;

	for (i = 0; i < library->count; i++, place++) {
		place->address += delta;
		place->detour += delta;
		for (n = 0; n < place->count; n++)
			probe_moved(place->first + n, delta);
	}
}

/* Of a library that is not found, or is another one, nothing is recorded: `place` becomes ~0. */
void libraries_found(void)
{
	const struct link_map *map;
	struct probed_library *library;
	struct library_hook *hook;
	struct r_debug *debug;
	u32 steps;

	objects_found();
	if (!ftpatch_config.libraries || ftpatch_config.flags & TRACE_ATTACHED)
		return;
	/* The linker fills in DT_DEBUG's value in the program's dynamic table. */
	debug = *(struct r_debug **)(ulong)(ftpatch_config.debug + process.bias);
	for (library = first(); library->place; library++) {
		hook = 0;
		for (map = debug ? debug->map : 0, steps = 0; map && !hook && steps < LONGEST;
		     map = map->next, steps++)
			if (map->dynamic - map->bias == (ulong)library->dynamic) {
				hook = hook_of(library->place, library->id, map->bias);
				if (hook)
					places_moved(library, map->bias - process.bias);
			}
		library->place = hook ? (ulong)hook : ~0ull;
	}
}

/* From here on they are probed. */
void libraries_connected(void)
{
	const struct probed_library *library;

	if (!ftpatch_config.libraries || ftpatch_config.flags & TRACE_ATTACHED)
		return;
	for (library = first(); library->place; library++) {
		struct library_hook *hook = (struct library_hook *)(ulong)library->place;

		if (library->place == ~0ull)
			continue;
		hook->delta = (ulong)LIBRARY_REGS_CALLER;
		__atomic_store_n(&hook->entry, (ulong)LIBRARY_CALLER, __ATOMIC_RELEASE);
	}
}
