# SPDX-License-Identifier: MIT
"""Copies of libraries with probes, which a probed program loads instead of the originals.

    shop.probed                  NEEDED $ORIGIN/shop.probed.libs/libz.so.1, then libz.so.1 as before
    shop.probed.libs/libz.so.1   detours, which go on to the runtime in shop.probed

The dynamic linker loads the copy by its path, and then takes it for what has its name (DT_SONAME),
whoever asks. Only glibc's does.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ftpatch.arch import arch_of
from ftpatch.core.changes import Changes
from ftpatch.elf.dynamic import Tag, dynamic_string, dynamic_values
from ftpatch.elf.headers import Segment
from ftpatch.errors import InputError, Refused, UsageError
from ftpatch.ftrace.plan import Plan
from ftpatch.image import Image, open_image
from ftpatch.image.injected import image_id
from ftpatch.image.needed import Needed, linker_of, loaded_by
from ftpatch.inject.debug_sections import for_debuggers
from ftpatch.inject.dynamic_entries import DynamicEntries, Entry
from ftpatch.inject.dynamic_strings import with_origin
from ftpatch.inject.inject import inject
from ftpatch.inject.runtime import probed_library_stub
from ftpatch.layout import offset_of, pack
from ftpatch.names.suggest import meant, near
from ftpatch.probe import Definition, definition_text
from ftpatch.probe.detours import with_detours
from ftpatch.probe.function_place import is_library
from ftpatch.probe.placing import AFAR, LATER, Placing, place_in_library
from ftpatch.probe.wildcards import Wildcards

__all__ = ["LibraryCopy", "needing", "place_in_libraries", "plan_copy"]

HOOK = "ftpatch_library"
GLIBC = ("ld-linux", "ld64.so")
"""Begin of the name of glibc's dynamic linker."""


@dataclass(frozen=True, kw_only=True)
class LibraryCopy:
    """The copy of a library: the ``plan`` for its ``image``, to be written as ``name``; ``told``:
    its struct probed_library; ``detours``: their link addresses."""

    name: str
    image: Image
    plan: Plan
    told: bytes
    detours: Sequence[int]


def place_in_libraries(
    image: Image,
    definitions: Sequence[Definition],
    refused: Refused,
    wildcards: Wildcards,
) -> dict[Needed, Placing]:
    """Place the probes of the libraries that a program loads, in the order in which it does,
    without those that are ``refused``. Raises UsageError for a program whose libraries cannot be
    copied."""
    if not definitions:
        return {}
    needed = _needed(image)
    by_library: dict[Needed, list[Definition]] = {}
    for one in definitions:
        with refused.told(image.path):
            by_library.setdefault(_library(image, needed, one), []).append(one)
    out = {}
    for library in needed:
        if library in by_library:
            with refused.told(library.path):
                found = open_image(library.path)
                _require_copyable(found, library, image)
                placing = place_in_library(found, by_library[library], refused, wildcards=wildcards)
                if placing.found:
                    out[library] = placing
    return out


def plan_copy(needed: Needed, placing: Placing, first: int, program: Image) -> LibraryCopy:
    """Plan the copy of a library for a ``program``; its detours are numbered from ``first``. Raises
    InputError if there is no room."""
    image, arch = placing.image, placing.arch
    stub = probed_library_stub(arch.name)
    assert stub is not None  # else there were no places
    hook = _address(stub.address(HOOK))
    callers = _address(stub.address("ftrace_caller")), _address(stub.address("ftrace_regs_caller"))
    laid = with_detours(stub, placing, first)
    entries = DynamicEntries(image, _own_entries(image, needed))
    whole, strings = laid.stub, 0
    if entries.strings:
        whole, strings = whole.with_data(entries.strings, arch.page)
    own = _identity(program, placing, first)

    def fill(shift: int) -> dict[int, bytes]:
        known = {hook + offset_of("library_hook", "image_id", arch.name): own}
        return known | laid.code(shift, callers)

    done = inject(image, whole, page=arch.page, entry=None, fill=fill, hops=laid.hops())
    changes, tail = for_debuggers(image, stub, done)
    parts = [changes, *laid.changes(done.shift), entries.changes(strings + done.shift)]
    dynamic = image.elf.segment(Segment.PT_DYNAMIC)
    assert dynamic is not None  # it has entries
    count = len(placing.found)
    plan = Plan(
        changes=Changes.concat(parts),
        code=np.empty((0, arch.width), np.uint8),
        selected=count,
        changed=count,
        dropped=0,
        restored=0,
        action="",
        tail=tail,
    )
    told = pack(
        "probed_library",
        arch.order,
        dynamic=dynamic.address,
        place=hook + done.shift,
        id=own,
        first=first,
        count=count,
    )
    detours = [start + done.shift for start in laid.starts]
    return LibraryCopy(name=needed.name, image=image, plan=plan, told=told, detours=detours)


def needing(image: Image, names: Sequence[str], folder: str) -> DynamicEntries:
    """The dynamic table of a program that loads the copies ``names`` in a ``folder`` beside it:
    each comes right before its own name, so that symbols are looked up in the same order. Raises
    InputError for a table without room."""
    paths = {os.fsencode(name): os.fsencode(f"$ORIGIN/{folder}/{name}") for name in names}
    entries, wanted = list[Entry](), list[Entry]()
    for tag, value, _ in dynamic_values(image.elf):
        if tag == Tag.NEEDED:
            copy = paths.pop(dynamic_string(image.elf, value), None)
            wanted += [(tag, copy)] if copy else []
            wanted.append((tag, value))
    wanted += [(Tag.NEEDED, path) for path in paths.values()]  # others need these
    rest = iter(wanted)
    for tag, value, _ in dynamic_values(image.elf):  # all others stay in their places
        entries.append(next(rest) if tag == Tag.NEEDED else (tag, value))
    try:
        return DynamicEntries(image, [*entries, *rest])
    except InputError as error:
        raise InputError(error.path, error.reason, f"probe fewer libraries, or {AFAR}") from None


def _needed(image: Image) -> list[Needed]:
    """The libraries that a program loads. Raises UsageError where they cannot be copied."""
    path = image.path
    if image.elf.segment(Segment.PT_INTERP) is None:
        raise UsageError(
            path, "statically linked: it loads no library", "remove the library's name"
        )
    linker = linker_of(image)
    if not Path(linker).name.startswith(GLIBC):
        raise UsageError(path, f"its dynamic linker is not glibc's: {linker}", "use --pid")
    arch = arch_of(image.elf.skeleton.machine, image.elf.skeleton.elf_class)
    stub = probed_library_stub(arch.name) if arch else None
    if stub is None:
        reason = "libraries of files cannot be probed on its architecture"
        raise UsageError(path, reason, f"{AFAR} or --pid")
    return loaded_by(image)


def _library(image: Image, needed: Sequence[Needed], definition: Definition) -> Needed:
    """The library that has the probe's function. Raises UsageError."""
    name, event = definition.library, definition.event
    if definition.template:
        event = f"{name}:{definition.symbol}"
    for one in needed:
        if is_library(name, one.names, one.path):
            return one
    if name in {linker_of(image), Path(linker_of(image)).name}:
        raise UsageError(image.path, f"{event}: the dynamic linker cannot be a copy", AFAR)
    known = [one.name for one in needed]
    hint = meant(near(name, known), f"it loads {', '.join(known) or 'none'}; {LATER}")
    raise UsageError(image.path, f"{event}: it loads no library {name!r}", hint)


def _require_copyable(library: Image, needed: Needed, program: Image) -> None:
    """Raise UsageError for a library whose copy would not be taken for it."""
    own = _soname(library)
    if "/" in needed.name or own not in (b"", os.fsencode(needed.name)):
        reason = f"{program.path.name} loads it as {needed.name}, not by its own name"
        reason += f" {os.fsdecode(own)}" if own else ""
        raise UsageError(library.path, reason, AFAR)


def _soname(library: Image) -> bytes:
    for tag, value, _ in dynamic_values(library.elf):
        if tag == Tag.SONAME:
            return dynamic_string(library.elf, value)
    return b""


def _own_entries(image: Image, needed: Needed) -> list[Entry]:
    """The dynamic table of a copy: it has a name, and $ORIGIN is where the original is."""
    origin = bytes(needed.path.absolute().parent)
    entries = list[Entry]()
    for tag, value, _ in dynamic_values(image.elf):
        old = dynamic_string(image.elf, value) if tag in (Tag.RPATH, Tag.RUNPATH) else b""
        new = with_origin(old, origin)
        entries.append((tag, new if new != old else value))
    if not _soname(image):
        entries.append((Tag.SONAME, os.fsencode(needed.name)))
    return entries


def _identity(program: Image, placing: Placing, first: int) -> bytes:
    """What a copy and its program know each other by: another one has other numbers of places."""
    held = hashlib.sha256(image_id(program) + image_id(placing.image))
    held.update(first.to_bytes(8, "little"))
    for one in placing.found:
        held.update(one.location.chosen.address.to_bytes(8, "little"))
        for each in one.location.definitions:
            held.update(definition_text(each).encode() + b"\0")
    return held.digest()


def _address(found: int | None) -> int:
    assert found is not None  # of ftpatch's own stub
    return found
