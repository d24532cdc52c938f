"""One file per architecture, one exported constant each."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from ftpatch.arch.contract import Abi, Arch, State

__all__ = ["Abi", "Arch", "State", "arch_of", "architectures"]

SHARED = {"aarch64", "assemble", "contract", "disassemble", "riscv", "x86", "x86_nops"}
SHARED |= {"branches", "move", "arm64_move", "x86_64_move", "detour", "registers", "accesses"}
SHARED |= {"plt", "system_calls", "twice", "boot", "boots", "boot_x86", "boot_arm64"}
"""Files of this package that are no architecture."""


@cache
def architectures() -> dict[tuple[int, int], Arch]:
    """(e_machine, bits of the ELF class) -> architecture, of every file in this package."""
    found: dict[tuple[int, int], Arch] = {}
    for module in pkgutil.iter_modules(__path__):
        if module.name not in SHARED:
            loaded = importlib.import_module(f"{__name__}.{module.name}")
            arch: Arch = getattr(loaded, loaded.__all__[0])
            found[arch.machine, arch.elf_class] = arch
    return found


def arch_of(machine: int, elf_class: int) -> Arch | None:
    """The architecture of an ELF header; None for one that is not supported."""
    return architectures().get((machine, elf_class))
