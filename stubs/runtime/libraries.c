// SPDX-License-Identifier: MIT
/* Before the program runs, when the dynamic linker has mapped everything it needs: find its
 * libraries in the linker's own list, and connect them to the tracer. */
#include "libraries.h"

#define MOST 64  /* maximum libraries */
#define LONGEST 65536 /* maximum entries of the linker's list to examine */

void trace_entry(void) __attribute__((visibility("hidden"))); /* of the tracer built in */

static struct library_hook *hooks[MOST]; /* by number in the program's table, 0: not found */
static ulong biases[MOST];

static const struct library *next(const struct library *library)
{
	return (const struct library *)((const char *)&library->told + library->told.length);
}

static const struct library *first(void)
{
	return (const struct library *)(ulong)(ftpatch_config.libraries + process.bias);
}

void libraries_found(void)
{
	const struct library *library;
	struct r_debug *debug;
	struct link_map *map;
	u32 i, steps = 0;

	if (!ftpatch_config.libraries)
		return;
	/* A linker that runs may be changing its list: ftpatch has found them. */
	if (ftpatch_config.flags & TRACE_ATTACHED) {
		for (i = 0, library = first(); library->told.length && i < MOST;
		     i++, library = next(library)) {
			hooks[i] = (struct library_hook *)(ulong)library->place;
			biases[i] = (ulong)library->told.bias;
		}
		return;
	}
	/* The linker fills in DT_DEBUG's value in the program's dynamic table. */
	debug = *(struct r_debug **)(ulong)(ftpatch_config.debug + process.bias);
	for (map = debug ? debug->map : 0; map && steps < LONGEST; map = map->next, steps++)
		for (i = 0, library = first(); library->told.length && i < MOST;
		     i++, library = next(library))
			if (!hooks[i] && map->dynamic - map->bias == (ulong)library->dynamic) {
				hooks[i] = hook_of(library->place, library->told.image_id, map->bias);
				biases[i] = map->bias;
			}
}

/* Record those that were found in the trace's header. */
void libraries_told(struct trace_header *header)
{
	char *to = header->libraries, *end = (char *)header + TRACE_HEADER;
	const struct library *library;
	u32 i, n;

	if (!ftpatch_config.libraries)
		return;
	for (i = 0, library = first(); library->told.length && i < MOST; i++, library = next(library)) {
		if (!hooks[i] || library->told.length > (ulong)(end - to))
			continue;
		for (n = 0; n < library->told.length; n++)
			to[n] = ((volatile const char *)&library->told)[n];
		((struct trace_library *)to)->bias = biases[i];
		to += library->told.length;
	}
}

/* From here on their functions are traced. A thread that one of them has started may call at any
 * moment. */
void libraries_connected(void)
{
	const struct library *library;
	u32 i;

	if (!ftpatch_config.libraries)
		return;
	for (i = 0, library = first(); library->told.length && i < MOST; i++, library = next(library)) {
		if (!hooks[i])
			continue;
		hooks[i]->delta = process.bias + (ulong)(ftpatch_config.base + library->told.start) -
				  biases[i] - (ulong)library->told.base;
		__atomic_store_n(&hooks[i]->entry, (ulong)trace_entry, __ATOMIC_RELEASE);
	}
}
