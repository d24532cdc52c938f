# SPDX-License-Identifier: MIT
"""Architectures: a folder each, with the same file names in all of them.

    ftrace.py         Arch: the sites, and the engines that assemble and disassemble
    move.py           Mover: instructions that run elsewhere
    branches.py       Branches: which addresses may be jumped to
    detour.py         Detour: the call of the probes
    registers.py      Registers: %REG, arguments, results
    arguments.py      Convention: where arguments of a declared function are
    system_calls.py   those that set or block signals
    returns_twice.py  Twice: functions that return more than once, such as setjmp
    plt.py            entries of a procedure linkage table
    plt_thunks.py     PltThunks: how those come to call a tracer
    accesses.py       what instructions do to memory
    breakpoints.py    Breakpoints: on data, set by the kernel for threads of a process
    raw_image.py      RawHeader: the header of the kernel's Image
    boot.py           BootTracer
    assembler.py      Assembler: instructions from text where Keystone lacks the architecture
    kernel_probe.py   KernelProbe: the code of probes in a kernel on disk
    kernel_text.py    KernelText: where that can have no jump
    stub_entry.py     StubEntry: what calls a user's stub in a kernel's module
    local_entry.py    LocalEntry: functions with a second entry, for their own file
    least_records.py  int: how many records a module's table must have
    instruction_set.py  SecondSet: which of two an address is in
    init_text.py      InitText: text whose sites ftrace_init does not compare
    instructions.py   Read: instructions where Capstone lacks the architecture
    gdb_stub.py       GdbStub: registers of QEMU's
    injected_call.py  InjectedCall: code for a running thread to pass through
    signal_frames.py  FindFrames: where threads in signal handlers go on
    text_patching.py  TextPatching: what a kernel does to its own text
    led_call.py       LedCall: system calls led to a runtime in a running process
    thread_state.py   ThreadState: registers and system calls of stopped threads
    linker_hook.py    LinkerHook: what the dynamic linker runs when it has mapped a library

``ftrace.py`` makes a folder an architecture, and the folder has its name. Every other file is a
feature: what the first name of its ``__all__`` is stands in the file of the same name here. An
absent one says that the architecture does not have the feature yet. No other file of the package
knows architectures by name: copy a folder, change what differs, and there is another one.

Beside these, a folder may have files for its own use: ``encode.py`` has instructions as numbers,
``x86/`` is what x86_64 and i386 share, ``arm_sets/`` has the two sets of arm.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from functools import cache
from typing import Any, Final

from ftpatch.arch.contract import Abi, Arch, State
from ftpatch.errors import InputError

__all__ = [
    "FEATURES",
    "Abi",
    "Arch",
    "State",
    "arch_named",
    "arch_of",
    "architectures",
    "feature",
    "name_of_machine",
    "supporting",
    "supports",
]

FEATURES: Final = {
    "move": "probes are",
    "branches": "probes with jumps are",
    "detour": "probes are",
    "puns": "probes with punned jumps are",
    "registers": "probes are",
    "arguments": "arguments by name are",
    "system_calls": "probes with traps are",
    "returns_twice": "probes of returns are",
    "plt": "a PLT is",
    "plt_thunks": "tracing library calls is",
    "accesses": "telling reads from writes is",
    "breakpoints": "watching a running process is",
    "raw_image": "an Image is",
    "boot": "the boot tracer is",
    "assembler": "assembling is",
    "kernel_probe": "probes in a kernel on disk are",
    "kernel_text": "probes within a kernel's functions are",
    "stub_entry": "a stub in a module is",
    "local_entry": "a local entry is",
    "least_records": "a module's table without records is",
    "instruction_set": "a second instruction set is",
    "init_text": "text that ftrace_init does not compare is",
    "instructions": "disassembling is",
    "gdb_stub": "watching a kernel's variables is",
    "held_call": "tracing programs that others start is",
    "injected_call": "tracing a running process is",
    "signal_frames": "tracing a running process is",
    "thread_state": "stopping processes is",
    "frame_registers": "tracing returns in a running process is",
    "linker_hook": "tracing libraries that are opened later is",
    "led_call": "probes with traps in a running process are",
    "text_patching": "comparing a kernel in memory is",
}
"""Files that a folder may have, and what is not supported if one is absent."""


@cache
def architectures() -> dict[tuple[int, int], Arch]:
    """Map (e_machine, bits of the ELF class) to the architecture, for every folder with an
    ``ftrace.py``."""
    folders = (folder.name for folder in pkgutil.iter_modules(__path__) if folder.ispkg)
    found = [arch_named(name) for name in folders if _has(name, "ftrace")]
    return {(arch.machine, arch.elf_class): arch for arch in found}


def arch_of(machine: int, elf_class: int) -> Arch | None:
    """The architecture of an ELF header; None if it is not supported."""
    return architectures().get((machine, elf_class))


def name_of_machine(machine: int) -> str:
    """The name of the architecture of an e_machine; empty if it is not supported."""
    return {arch.machine: arch.name for arch in architectures().values()}.get(machine, "")


@cache
def arch_named(name: str) -> Arch:
    """Load the architecture of a folder."""
    arch: Arch = _load(name, "ftrace")
    return arch


def feature(arch: str, name: str) -> Any:  # noqa: ANN401 - the file of that name has its type
    """Load an architecture's feature. Raises InputError if it has no file of that name."""
    if not supports(arch, name):
        raise InputError(None, f"{FEATURES[name]} not supported on {arch}")
    return _load(arch, name)


@cache
def supports(arch: str, *names: str) -> bool:
    """Return whether an architecture has all of these features; an empty name has none."""
    assert FEATURES.keys() >= set(names), names
    return bool(arch) and all(_has(arch, name) for name in names)


def supporting(*names: str) -> list[str]:
    """The architectures that have all of these features."""
    return sorted(arch.name for arch in architectures().values() if supports(arch.name, *names))


def _has(arch: str, file: str) -> bool:
    return importlib.util.find_spec(f"{__name__}.{arch}.{file}") is not None


def _load(arch: str, file: str) -> Any:  # noqa: ANN401
    module = importlib.import_module(f"{__name__}.{arch}.{file}")
    return getattr(module, module.__all__[0])
