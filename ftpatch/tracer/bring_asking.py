# SPDX-License-Identifier: MIT
"""A tracer for a program whose dynamic linker asks what to do when it has mapped all libraries: it
is planned as for a running process, and the linker's thread, the only one, brings it in.

    exec | linker maps, relocates | asks: areas mapped, runtime started, sites call | constructors
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ftpatch.errors import InputError
from ftpatch.process.areas import READ_EXECUTE, Area
from ftpatch.process.linker import Asking, Started
from ftpatch.process.loaded import Loaded
from ftpatch.process.maps import read_maps
from ftpatch.process.memory_target import MemoryTarget
from ftpatch.process.permitted import require_permitted
from ftpatch.process.send import injected_call_of
from ftpatch.process.walks import put_leads
from ftpatch.tracer.attach import Chosen, plan_attached
from ftpatch.tracer.connected import Runtime
from ftpatch.tracer.plan import Tracing

__all__ = ["PRIVATE", "bring_asking", "map_asking"]

PRIVATE: Final = 0x2 | 0x20
"""MAP_PRIVATE, MAP_ANONYMOUS."""
NOREPLACE: Final = PRIVATE | 0x100000
"""MAP_FIXED_NOREPLACE (Linux 4.17)."""


def bring_asking(
    asking: Asking,
    target: MemoryTarget,
    loaded: Sequence[Loaded],
    chosen: Sequence[Chosen],
    tracing: Tracing,
    environment: dict[str, str],
) -> Started:
    """Bring a tracer in and let the chosen sites call it. Raises what planning raises, and
    InputError."""
    process = asking.process
    plan = plan_attached(process, loaded, chosen, read_maps(process), tracing, environment)
    require_permitted(process, plan.arch, hooks=plan.hooks, otherwise=plan.otherwise)
    held, there = target.held(plan.calls.changes)
    if not there.all() or (held != plan.calls.changes.old).any():
        raise InputError(None, "its code in memory is not that of the file")
    for area in plan.areas:
        map_asking(asking, target, area)
    started = Started(config=plan.config, argument=plan.start.arguments[0])
    asking.run(plan.start.address, started.argument)
    if not Runtime.of(loaded[0], target, tracing, plan.config).is_ready:
        raise InputError(None, "no memory, disk space or permission for a trace file")
    put_leads(target, plan.slots, plan.exports)
    target.apply(plan.calls.changes)
    return started


def map_asking(asking: Asking, target: MemoryTarget, area: Area) -> None:
    """Map, fill and protect an area. Raises InputError."""
    call = injected_call_of(asking.arch)
    asking.call(call.mmap, (area.start, area.size, READ_EXECUTE, NOREPLACE, -1, 0))
    for at, data in area.contents:
        target.write(at, data)
    for protected in area.protected:
        asking.call(call.mprotect, protected)
