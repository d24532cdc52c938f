# SPDX-License-Identifier: MIT
"""Planning a shared library traced with a program: its sites call the program's tracer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.changes import Changes
from ftpatch.elf.headers import Segment
from ftpatch.elf.properties import without_shadow_stack
from ftpatch.errors import InputError, UsageError
from ftpatch.ftrace.addr import Callee
from ftpatch.ftrace.plan import Plan, plan_enable
from ftpatch.ftrace.sites import Sites
from ftpatch.image.injected import image_id
from ftpatch.inject.debug_sections import for_debuggers
from ftpatch.inject.dynamic_strings import replaced, strings
from ftpatch.inject.inject import inject
from ftpatch.inject.library_tables import Library
from ftpatch.inject.runtime import library_stub
from ftpatch.layout import offset_of
from ftpatch.tracer.plan import traceable

__all__ = ["Place", "plan_library"]

HOOK = "ftpatch_library"


@dataclass(frozen=True, kw_only=True)
class Place:
    """One of the traced libraries: (start, size, base) of its ``range``, its ``path`` in traces,
    and new ``strings`` of its dynamic table, by the entry's offset."""

    range: tuple[int, int, int]
    path: bytes
    strings: Mapping[int, bytes] = field(default_factory=dict)


def plan_library(
    sites: Sites, mask: NDArray[np.bool_], place: Place, *, arguments: bool, hooks: bool
) -> tuple[Plan, Library]:
    """Plan calls, at the sites in ``mask``, bool[n], to the tracer of the program that loads the
    library; return the plan, and the library's entry in the program's table. ``hooks``: the tracer
    replaces return addresses.

    Raises UsageError for a library that has a tracer already; InputError or SiteRefused if there is
    no room.
    """
    image, arch = sites.image, sites.arch
    mask = traceable(sites, mask, libraries=True)
    stub = library_stub(arch.name, arguments=arguments)
    hook = stub.address(HOOK)
    dynamic = image.elf.segment(Segment.PT_DYNAMIC)
    if hook is None:
        raise InputError(stub.path, f"the stub has no {HOOK}")
    if dynamic is None or image.is_relocatable:
        raise UsageError(image.path, "no shared library", "use --lib GLOB")
    whole, names = stub, 0
    held, places = strings(place.strings)
    if places:
        whole, names = stub.with_data(held, arch.page)
    own = image_id(image)
    known = {hook + offset_of("library_hook", "image_id", arch.name): own}
    laid = inject(image, whole, page=arch.page, entry=None, fill=lambda _: known)
    name = "ftrace_regs_caller" if arguments else "ftrace_caller"
    plan = plan_enable(sites, mask, Callee((stub.address(name) or 0) + laid.shift, name))
    changes, tail = for_debuggers(image, stub, laid)
    parts = [plan.changes, changes]
    if places:
        parts.append(replaced(image, places, names + laid.shift))
    if hooks:
        parts.append(without_shadow_stack(image.elf, arch.shadow_stack))
    library = Library(
        place.path,
        own,
        *place.range,
        dynamic=dynamic.address,
        place=hook + laid.shift,
        sites=plan.selected,
    )
    return replace(plan, changes=Changes.concat(parts), tail=tail), library
