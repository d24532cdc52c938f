# SPDX-License-Identifier: MIT
"""The images of a process that are to be probed: where, and by which method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from ftpatch.arch import Arch, arch_of, supporting, supports
from ftpatch.arch.move import Mover, mover_of
from ftpatch.arch.registers import registers_of
from ftpatch.errors import Refused, UsageError
from ftpatch.image.injected import laid_in_id
from ftpatch.inject.probe_methods import Methods
from ftpatch.inject.signal_calls import Asked, find_asked
from ftpatch.names.functions import Functions, read_functions
from ftpatch.names.suggest import meant, near
from ftpatch.probe import Definition
from ftpatch.probe.found import Found, fetchings
from ftpatch.probe.function_place import is_library
from ftpatch.probe.implementations import implementations
from ftpatch.probe.locations import Location, find_locations, find_pads
from ftpatch.probe.placing import LATER, NEEDED
from ftpatch.probe.usable import require_return
from ftpatch.probe.wildcards import Wildcards, require_each, skipping
from ftpatch.probe.within import Searched, with_calls
from ftpatch.process.breakpoints import BREAKPOINT, END_IT, has_breakpoint
from ftpatch.process.loaded import Loaded

__all__ = ["COPY", "Target", "find_targets"]

OWN_CODE = "injected_call"
"""Per architecture, beside NEEDED."""
TRAPPED = "led_call"
"""Per architecture, for traps."""
COPY = "probe a copy of the file instead"
"""The hint where a process cannot be probed."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """An image of a process, with the locations of its probes; ``mover`` moves its instructions;
    ``asked``: the system calls about signals of all images of the process, if there are traps."""

    loaded: Loaded
    arch: Arch
    mover: Mover
    functions: Functions
    methods: Methods
    found: Sequence[Found]
    asked: Sequence[tuple[Loaded, Asked]] = ()

    @property
    def traps(self) -> bool:
        """Test whether any of its probes is a trap."""
        return any(one.location.chosen.method.traps for one in self.found)

    @property
    def returns(self) -> bool:
        """Test whether return addresses are replaced."""
        kinds = {each.kind for one in self.found for each in one.location.definitions}
        return "r" in kinds

    @property
    def stacks(self) -> bool:
        """Test whether calls are recorded with hits."""
        return any(each.stack for one in self.found for each in one.location.definitions)


def find_targets(
    loaded: Sequence[Loaded],
    definitions: Sequence[Definition],
    refused: Refused,
    *,
    optimize: bool = True,
    wildcards: Wildcards | None = None,
) -> list[Target]:
    """Find the locations, image by image, leaving out what is ``refused``. ``loaded`` begins with
    the program; without ``optimize`` there are traps where there could be jumps. Raises UsageError
    if none is left."""
    wildcards = wildcards or Wildcards()
    wildcards.reserve(definitions)
    by_image: dict[int, list[Definition]] = {}
    for one in definitions:
        with refused.told():
            by_image.setdefault(_image(loaded, one), []).append(one)
    out = []
    for row, those in by_image.items():
        with refused.told():
            target = _target(loaded[row], loaded, those, wildcards, refused, optimize=optimize)
            if target.found:
                out.append(target)
    if any(target.traps for target in out):
        out = _beside_calls(loaded, out, refused)
    out = _with_calls(loaded[0], out, refused)
    if not out:
        if refused.errors:
            raise refused.errors.pop()
        raise UsageError(loaded[0].path, "no probes", "specify a probe, such as 'p main'")
    return out


def _image(loaded: Sequence[Loaded], definition: Definition) -> int:
    """The row of the image that has the probe's function. Raises UsageError."""
    name = definition.library
    if not name:
        if not definition.template:
            _require_own(loaded, definition)
        return 0
    rows = [row for row, one in enumerate(loaded) if is_library(name, one.names, one.path)]
    if len(rows) > 1:
        paths = {str(loaded[row].path) for row in rows}
        hint = f"use its path: {', '.join(sorted(paths))}" if len(paths) > 1 else COPY
        raise UsageError(loaded[0].path, f"{name!r} is loaded {len(rows)} times", hint)
    if not rows:
        known = {one.path.name for one in loaded}
        hint = meant(near(name, known), f"{LATER}, or by --pid once it is there")
        raise UsageError(loaded[0].path, f"no library {name!r} is loaded", hint)
    return rows[0]


def _require_own(loaded: Sequence[Loaded], definition: Definition) -> None:
    """Raise UsageError for a function that libraries have, and the program does not even import."""
    name, program = definition.symbol, loaded[0]
    if name is None or any(
        len(table.rows_named(name, defined=False))
        for table in (program.file.symbols, program.file.dynamic_symbols)
    ):
        return
    those = [one for one in loaded[1:] if one.file.dynamic_symbols.find(name) is not None]
    if those:
        reason = f"no such function {name!r} in the program"
        raise UsageError(program.path, reason, f"use {those[0].path.name}:{name}")


def _target(
    loaded: Loaded,
    others: Sequence[Loaded],
    definitions: Sequence[Definition],
    wildcards: Wildcards,
    refused: Refused,
    *,
    optimize: bool,
) -> Target:
    """Find the locations of one image. Raises UsageError for one that cannot be probed."""
    image = loaded.image
    arch = arch_of(image.elf.skeleton.machine, image.elf.skeleton.elf_class)
    if arch is None or not supports(arch.name, OWN_CODE, *NEEDED):
        known = ", ".join(supporting(OWN_CODE))
        reason = "processes cannot be probed on its architecture"
        raise UsageError(loaded.path, reason, f"supported: {known}")
    if laid_in_id(loaded.file) is not None:
        reason = "its file has a tracer or probes of ftpatch"
        raise UsageError(loaded.path, reason, "start the program without them")
    functions = read_functions(image)
    mover = mover_of(arch.name, functions.is_second)
    if functions.resolvers:
        chosen = implementations(loaded, others, functions, arch)
        functions = replace(functions, chosen=chosen)
    methods = Methods(image, arch, mover, functions, find_pads(image))
    named = wildcards.spelled(functions, definitions, refused)
    locations = find_locations(
        methods,
        functions,
        named,
        refused,
        optimize=optimize,
        started=True,
        require_own=partial(_require_no_breakpoint, loaded),
    )
    usable = []
    for one in locations:
        with refused.told(loaded.path, skips=skipping(one.definitions)):
            _require_usable(loaded, methods, functions, one, traps=supports(arch.name, TRAPPED))
            usable.append(one)
    found = fetchings(image, usable, registers_of(arch.name), refused)
    left = [definition for one in found for definition in one.location.definitions]
    require_each(functions, named, left, refused)
    return Target(
        loaded=loaded,
        arch=arch,
        mover=mover,
        functions=functions,
        methods=methods,
        found=found,
    )


def _with_calls(program: Loaded, targets: Sequence[Target], refused: Refused) -> list[Target]:
    """Complete filters with what their ``within()`` may be in, in any image. Leave out probes
    without it."""
    images = [
        Searched(
            functions=one.functions,
            found=one.found,
            names=("", *one.loaded.names) if one.loaded is program else one.loaded.names,
            path=one.loaded.path,
            above=one.loaded.bias - program.bias,
        )
        for one in targets
    ]
    left = zip(targets, with_calls(images, refused), strict=True)
    return [replace(target, found=found) for target, found in left if found]


def _beside_calls(
    loaded: Sequence[Loaded], targets: Sequence[Target], refused: Refused
) -> list[Target]:
    """Find the system calls about signals of all images. Leave out traps if one cannot be led to
    the runtime, and probes on the code that leads there."""
    arch = targets[0].arch
    asked = [(one, find_asked(one.image, arch)) for one in loaded if _is_of(one, arch)]
    for image, found in asked:
        _require_as_file(image, found)
    unled = [(image, at) for image, found in asked for at in found.unled]
    led = {id(image): found.led for image, found in asked}
    out = []
    for target in targets:
        free = []
        for one in target.found:
            location, path = one.location, target.loaded.path
            names = ", ".join(each.event for each in location.definitions)
            with refused.told(skips=skipping(location.definitions)):
                if location.chosen.method.traps:
                    _require_led(names, path, unled)
                start, end = target.methods.span(location.chosen)
                for low, high in led[id(target.loaded)]:
                    if start < high and low < end:
                        reason = f"{names}: {low:#x} to {high:#x} are reserved for traps"
                        raise UsageError(path, reason, "probe another address")
                free.append(one)
        if free:
            out.append(replace(target, found=free, asked=asked))
    return out


def _require_as_file(loaded: Loaded, asked: Asked) -> None:
    """Raise UsageError if somebody else has changed the code of such a call."""
    if not len(loaded.changed) or not asked.led:
        return
    bounds = np.array(asked.led, np.uint64)
    low = loaded.file.elf.offset_of(bounds[:, 0], executable=True)[:, None]
    size = (bounds[:, 1] - bounds[:, 0]).astype(np.int64)[:, None]
    held = (loaded.changed >= low) & (loaded.changed < low + size)
    if held.any():
        at = int(bounds[held.any(axis=1)][0, 0])
        reason = f"a trap needs the system call at {at:#x}, which is not what it is in the file"
        raise UsageError(loaded.path, reason, f"see `ftpatch check --pid {loaded.process.pid}`")


def _is_of(loaded: Loaded, arch: Arch) -> bool:
    skeleton = loaded.file.elf.skeleton
    found = arch_of(skeleton.machine, skeleton.elf_class)
    return found is arch


def _require_led(names: str, path: Path, unled: Sequence[tuple[Loaded, int]]) -> None:
    """Raise UsageError for a trap if a system call is ``unled``."""
    if unled:
        one, at = unled[0]
        reason = f"{names}: it needs a trap, and the system call at {one.path.name}+{at:#x} may "
        reason += "set or block SIGILL, and cannot be redirected"
        raise UsageError(path, reason, "probe another address")


def _require_no_breakpoint(loaded: Loaded, address: int) -> None:
    """Raise UsageError for an address at which somebody else has a breakpoint."""
    if has_breakpoint(loaded, address):
        place = loaded.file.kallsyms.places(np.array([address], np.uint64))[0] or hex(address)
        raise UsageError(loaded.path, f"no probe at {place}: {BREAKPOINT}", END_IT)


def _require_usable(
    loaded: Loaded, methods: Methods, functions: Functions, location: Location, *, traps: bool
) -> None:
    """Raise UsageError for a location that is called by the dynamic linker, or whose code somebody
    else has changed, or that needs a trap where there are no ``traps`` in processes."""
    names, chosen = ", ".join(one.event for one in location.definitions), location.chosen
    place = functions.image.kallsyms.places(np.array([location.ip], np.uint64))[0]
    place = place or f"{location.ip:#x}"
    if location.ip in functions.resolvers:
        reason = f"{names}: {place} only chooses the function's implementation (IFUNC)"
        raise UsageError(loaded.path, reason, "probe that by its address, 0x...")
    require_return(loaded.path, functions, location)
    if chosen.method.traps and not traps:
        reason = f"{names}: {place} has no room for a jump: {chosen.why}"
        raise UsageError(loaded.path, reason, COPY)
    start, end = methods.span(chosen)
    offset = int(loaded.file.elf.offset_of(np.array([start], np.uint64))[0])
    if ((loaded.changed >= offset) & (loaded.changed < offset + end - start)).any():
        reason = f"{names}: {place} is not in memory what it is in the file"
        raise UsageError(loaded.path, reason, f"see `ftpatch check --pid {loaded.process.pid}`")
