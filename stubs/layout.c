// SPDX-License-Identifier: MIT
/* Every structure and constant that ftpatch or assembly shares with the runtime, for the debug
 * information, from which layout.py writes ftpatch/layout/ARCH.json and built/ARCH/offsets.h.
 * Nothing of this gets into a stub.
 *
 * What is asserted here must not change: trace files of earlier versions rely on it, and programs
 * patched by them; and code that stores consecutive registers. */
#define PROBES
#define WATCH
struct context;
struct registers;
#include "system_calls.h"
#include "ftrace_regs.h"
#include "libraries.h"
#include "lookups.h"
#include "probes.h"
#include "profile.h"
#include "tally.h"
#include "watch.h"

/* Macros are not in debug information, and enums have no texts: these are read as they stand here. */
const char layout_TRACE_MAGIC[8] = TRACE_MAGIC;
const char layout_STUB_MAGIC[16] = STUB_MAGIC;
const char layout_LIBRARY_MAGIC[16] = LIBRARY_MAGIC;

#define SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), "size of struct " #type)
#define AT(type, member, bytes) \
	_Static_assert(__builtin_offsetof(struct type, member) == (bytes), "place of " #type "." #member)

/* Trace files: other places are another TRACE_VERSION. */
SIZE(trace_header, 1280);
AT(trace_header, magic, 0);
AT(trace_header, version, 8);
AT(trace_header, header_size, 12);
AT(trace_header, machine, 16);
AT(trace_header, chunk_size, 20);
AT(trace_header, tracer, 24);
AT(trace_header, flags, 28);
AT(trace_header, size, 32);
AT(trace_header, taken, 40);
AT(trace_header, bias, 48);
AT(trace_header, base, 56);
AT(trace_header, hz, 64);
AT(trace_header, ticks, 72);
AT(trace_header, realtime, 80);
AT(trace_header, ended_ticks, 88);
AT(trace_header, ended_realtime, 96);
AT(trace_header, pid, 104);
AT(trace_header, ppid, 108);
AT(trace_header, depth, 112);
AT(trace_header, threads, 116);
AT(trace_header, lost, 120);
AT(trace_header, overwritten, 160);
AT(trace_header, accounts, 168);
AT(trace_header, accounted, 176);
AT(trace_header, off, 180);
AT(trace_header, image_id, 184);
AT(trace_header, comm, 216);
AT(trace_header, probes, 232);
AT(trace_header, children, 236);
AT(trace_header, refusal, 240);
AT(trace_header, grown, 244);
AT(trace_header, cut, 248);
AT(trace_header, path, 256);
AT(trace_header, libraries, 1280);
SIZE(trace_library, 72);
AT(trace_library, length, 0);
AT(trace_library, start, 8);
AT(trace_library, size, 16);
AT(trace_library, base, 24);
AT(trace_library, bias, 32);
AT(trace_library, image_id, 40);
AT(trace_library, path, 72);
SIZE(trace_probe, 48);
AT(trace_probe, counted, 0);
AT(trace_probe, first, 4);
AT(trace_probe, missed, 8);
AT(trace_probe, active, 16);
AT(trace_probe, ip, 24);
AT(trace_probe, words, 32);
AT(trace_probe, flags, 36);
AT(trace_probe, text, 40);
AT(trace_probe, length, 44);
SIZE(trace_hist, 128);
AT(trace_hist, hash, 0);
AT(trace_hist, key, 8);
AT(trace_hist, hits, 72);
AT(trace_hist, sum, 80);
AT(trace_hist, least, 96);
AT(trace_hist, most, 112);
SIZE(trace_watch, 1024);
AT(trace_watch, hits, 0);
AT(trace_watch, missed, 8);
AT(trace_watch, address, 16);
AT(trace_watch, length, 24);
AT(trace_watch, type, 28);
AT(trace_watch, refusal, 32);
AT(trace_watch, size, 36);
AT(trace_watch, text, 40);
SIZE(trace_chunk, 32);
AT(trace_chunk, magic, 0);
AT(trace_chunk, tid, 4);
AT(trace_chunk, base, 8);
AT(trace_chunk, number, 16);
AT(trace_chunk, open, 20);
AT(trace_chunk, held, 24);
AT(trace_chunk, account, 28);
AT(trace_chunk, thread, 30);
SIZE(trace_account, 64);
AT(trace_account, tid, 0);
AT(trace_account, lost, 8);
AT(trace_account, overwritten, 48);
SIZE(trace_profile, 32);
AT(trace_profile, func, 0);
AT(trace_profile, hits, 8);
AT(trace_profile, total, 16);
AT(trace_profile, self, 24);

/* Programs that have a tracer, probes or watches are asked for them by later versions. */
SIZE(stub_config, 176);
AT(stub_config, magic, 0);
SIZE(library, 88);
SIZE(library_hook, 64);
SIZE(probed_library, 56);
SIZE(probe_place, 24);
SIZE(probe, 48);
SIZE(fetch, 16);
SIZE(probe_table, 56);
SIZE(watch_rule, 1024);
SIZE(watched_library, 64);
SIZE(hook, 16);
SIZE(hook_table, 24);

/* Users' stubs are compiled with this: what comes later is added at the end. */
AT(fgraph_call, func, 0);
AT(fgraph_call, ip, sizeof(long));
AT(fgraph_call, parent, 2 * sizeof(long));
AT(fgraph_call, data, 3 * sizeof(long));
AT(fgraph_call, calltime, 4 * sizeof(long));
AT(fgraph_call, rettime, 4 * sizeof(long) + 8);
AT(fgraph_call, overrun, 4 * sizeof(long) + 16);
AT(fgraph_call, missed, 4 * sizeof(long) + 24);
AT(fgraph_call, lost, 4 * sizeof(long) + 32);
AT(fgraph_call, depth, 4 * sizeof(long) + 40);
AT(fgraph_call, tid, 4 * sizeof(long) + 44);

/* ARCH/system_calls.S stores the words of `asked` in this order, unwind.h takes `top` for a thread's first. */
AT(asked, number, 0);
AT(asked, args, sizeof(long));
AT(asked, done, 7 * sizeof(long));
AT(asked, back, 8 * sizeof(long));
AT(thread, top, 0);
AT(frame, slot, 0);
