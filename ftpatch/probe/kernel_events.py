# SPDX-License-Identifier: MIT
"""Probes for a running kernel's own kprobes: lines of kprobe_events, and of a bootconfig.

Both are Documentation/trace/kprobetrace.rst and boottime-trace.rst. Link addresses become offsets
from symbols, since KASLR moves the kernel. What else the kernel does not take is refused here: at
boot it says so in the log only, and goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from ftpatch.arch import arch_of, supports
from ftpatch.arch.move import mover_of
from ftpatch.arch.registers import Registers
from ftpatch.core.columns import addresses
from ftpatch.errors import Refused, UsageError
from ftpatch.image import Image
from ftpatch.image.kallsyms.own_symbols import read_own_symbols
from ftpatch.inject.boundaries import MAX_INSTRUCTION, Boundaries
from ftpatch.names.functions import read_functions
from ftpatch.names.named_symbols import DATA, Named
from ftpatch.names.suggest import meant
from ftpatch.probe.definition import Definition, Fetch, Source
from ftpatch.probe.event_names import KERNEL_GROUP
from ftpatch.probe.text import definition_text

__all__ = ["Form", "event_lines", "for_kernel"]

Form = Literal["kprobe_events", "bootconfig"]
FETCH_LIMIT = 63
"""Maximum length of VALUE:TYPE: MAX_ARGSTR_LEN of kernel/trace/trace_probe.h."""
LINE_LIMIT = 4094
"""Maximum length of a line: WRITE_BUFSIZE of kernel/trace/trace.c, less its newline and NUL."""
BOOT_LIMIT = 254
"""Maximum length of a boot-time probe, ``p:kprobes/NAME PLACE FETCH...``: MAX_BUF_LEN of
kernel/trace/trace_boot.c, less two NULs."""
BOOT_NAME = 53
"""Maximum length of its name: __kprobe_event_gen_cmd_start() cuts ``p:kprobes/NAME`` to
MAX_EVENT_NAME_LEN."""
SWITCH = "enable"
"""No name of an event in a bootconfig: it enables those of its group."""
BASES = ("_text", "_stext")
"""Symbols from which addresses are counted that no unique symbol precedes; not every kernel's
kallsyms have the first."""


def for_kernel(
    image: Image, definitions: Sequence[Definition], registers: Registers, refused: Refused
) -> list[Definition]:
    """Put definitions in the kernel's words, leaving out what is ``refused``. Raises UsageError
    for anything but a kernel or a module."""
    if not image.has_table:
        reason = f"{image.kind} has no kprobes"
        raise UsageError(image.path, reason, "use a kernel or a module")
    names = _Names(image)
    out = []
    for one in definitions:
        with refused.told(image.path):
            out.append(names.put(one, registers))
    return out


def event_lines(definition: Definition, form: Form) -> list[str]:
    """The lines of a definition that ``for_kernel`` has made: one for kprobe_events, or two for a
    bootconfig, which define and enable the event. Raises UsageError for what they cannot say."""
    text, name = definition_text(definition), definition.name
    if form == "kprobe_events":
        if len(text) > LINE_LIMIT:
            reason = f"{name}: the line has {len(text)} characters, and a kernel reads {LINE_LIMIT}"
            raise UsageError(None, reason, "fetch less")
        return [text]
    hint = "print it for kprobe_events"
    if definition.group != KERNEL_GROUP:
        reason = f"{name}: a bootconfig has probes only in the group {KERNEL_GROUP}, "
        raise UsageError(None, reason + f"not in {definition.group}", f"write p:{name}")
    if definition.maxactive:
        reason = f"{name}: a bootconfig has no maxactive ({definition.maxactive})"
        raise UsageError(None, reason, f"{hint}, or write r:{name}")
    if name == SWITCH or len(name) > BOOT_NAME:
        rule = f"an event of a bootconfig cannot be named {SWITCH}"
        rule = rule if name == SWITCH else f"its name has at most {BOOT_NAME} characters there"
        raise UsageError(None, f"{name}: {rule}", "use another name, as in p:NAME")
    _, place, *fetches = text.split(" ")
    value = " ".join([place + "%return" * (definition.kind == "r"), *fetches])
    length = len(f"p:{KERNEL_GROUP}/{name} {value}")
    if length > BOOT_LIMIT:
        reason = f"{name}: its probe has {length} characters, and a bootconfig's has {BOOT_LIMIT}"
        raise UsageError(None, reason, f"fetch less, or {hint}")
    key = f"ftrace.event.{KERNEL_GROUP}.{name}"
    return [f'{key}.probes = "{value}"', f"{key}.enable"]


class _Names:
    """What a kernel or a module calls its places."""

    def __init__(self, image: Image) -> None:
        self._image, self._functions = image, read_functions(image)
        own = read_own_symbols(image.elf, image.relocations) if image.is_kernel else None
        self._known = image.symbols if own is None else own.symbols(image.path)

    def put(self, definition: Definition, registers: Registers) -> Definition:
        """Put a definition in the kernel's words. Raises UsageError for what has no name there, and
        where no probe can be."""
        module = self._image.module_name
        if definition.library not in ("", module):
            reason = f"{definition.name}: {definition.library} is not in this image"
            raise UsageError(self._image.path, reason, "name the module's file")
        address = self._address(definition)
        symbol, offset = definition.symbol, definition.offset
        if symbol is None or not self._is_unique(symbol):
            symbol, offset = self._place(address)
        return replace(
            definition,
            symbol=symbol,
            offset=offset,
            address=None,
            library=module,
            fetches=tuple(self._fetch(one, definition, registers) for one in definition.fetches),
        )

    def _address(self, definition: Definition) -> int:
        """Resolve a definition to a link address. Raises UsageError where no probe can be."""
        functions, path = self._functions, self._image.path
        address = definition.address or 0
        if definition.symbol is not None:
            address = functions.names.address(definition.symbol) + definition.offset
        signed = address - (address >> 63 << 64)  # as Functions has them
        around = functions.around(signed)
        if around is None:
            raise UsageError(path, f"{definition.name}: {address:#x} is in no function")
        if definition.symbol is not None and signed - definition.offset != around[0]:
            reason = f"{definition.name}: {address:#x} is not in {definition.symbol}"
            raise UsageError(path, reason, "use a smaller offset")
        entry = signed == around[0]
        if not entry:
            self._require_boundary(definition.name, address - (signed - around[0]), address)
        if definition.kind == "r" and not (entry and functions.is_called(signed)):
            reason = f"{definition.name}: {address:#x} is not a known function entry"
            raise UsageError(path, reason, "use a p probe")
        if not entry and any(one.source is Source.ARGUMENT for one in definition.fetches):
            reason = f"{definition.name}: $argN can be used only on function entry"
            raise UsageError(path, reason, "fetch %REG")
        return address

    def _require_boundary(self, name: str, start: int, address: int) -> None:
        skeleton = self._image.elf.skeleton
        arch = arch_of(skeleton.machine, skeleton.elf_class)
        if arch is not None and supports(arch.name, "move"):
            mover = mover_of(arch.name)
            code = Boundaries(self._image, arch, mover, self._functions)
            if not code.is_boundary(start, address + MAX_INSTRUCTION, address):
                reason = f"{name}: {address:#x} is not at an instruction boundary"
                raise UsageError(self._image.path, reason, "see `objdump -d`")

    def _is_unique(self, name: str) -> bool:
        """Test whether the kernel's kallsyms have a name exactly once."""
        return len(self._known.rows_named(name)) == 1

    def _place(self, address: int) -> tuple[str, int]:
        """Symbol and offset of an address. Raises UsageError if no name leads there."""
        ((name, offset, _),) = self._image.kallsyms.lookup(addresses(address))
        if name and self._is_unique(name):
            return name, offset
        for name in BASES:
            base = self._known.find(name)
            if base is not None and base <= address:
                return name, address - base
        raise UsageError(self._image.path, f"{address:#x} is at no symbol that is unique")

    def _data(self, name: str) -> int:
        """Address of a symbol. Raises UsageError if it is unknown or ambiguous."""
        symbols = self._image.symbols
        found = sorted(set(symbols.value[symbols.rows_named(name)].tolist()))
        if len(found) > 1:
            several = ", ".join(f"@{at:#x}" for at in found)
            reason = f"@{name} is ambiguous ({len(found)} definitions)"
            raise UsageError(self._image.path, reason, f"use one of {several}")
        if not found:
            named = Named(symbols, DATA)
            hint = meant(named.find(name) or named.like(name), "see `nm`")
            raise UsageError(self._image.path, f"@{name}: no such symbol", hint)
        return int(found[0])

    def _fetch(self, fetch: Fetch, definition: Definition, registers: Registers) -> Fetch:
        said = fetch
        match fetch.source:
            case Source.REGISTER:
                said = replace(fetch, text=registers.kernel.get(fetch.text, fetch.text))
            case Source.ADDRESS:
                symbol, offset = self._place(fetch.value)
                said = replace(fetch, source=Source.SYMBOL, text=symbol, value=offset)
            case Source.SYMBOL if not self._is_unique(fetch.text):
                symbol, offset = self._place(self._data(fetch.text) + fetch.value)
                said = replace(fetch, text=symbol, value=offset)
        alone = replace(definition, symbol="f", offset=0, library="", fetches=(said,))
        text = definition_text(alone).split(" ")[2].partition("=")[2]
        if len(text) > FETCH_LIMIT:
            reason = f"{definition.name}: {text} has {len(text)} characters, "
            raise UsageError(None, reason + f"and a kernel takes {FETCH_LIMIT}", "fetch less deep")
        return said
