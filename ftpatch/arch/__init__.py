"""Architectures: a folder each, with the same file names in all of them.

``ftrace.py`` makes a folder an architecture. Every other file is a feature; an absent one says that
the architecture does not have it yet.
"""

from __future__ import annotations

import importlib.util
import pkgutil
from functools import cache

from ftpatch.arch.contract import Abi, Arch, State

__all__ = ["Abi", "Arch", "State", "arch_of", "architectures"]


@cache
def architectures() -> dict[tuple[int, int], Arch]:
    """(e_machine, bits of the ELF class) -> architecture, of every folder with an ``ftrace.py``."""
    found: dict[tuple[int, int], Arch] = {}
    for folder in pkgutil.iter_modules(__path__):
        name = f"{__name__}.{folder.name}.ftrace"
        if folder.ispkg and importlib.util.find_spec(name) is not None:
            loaded = importlib.import_module(name)
            arch: Arch = getattr(loaded, loaded.__all__[0])
            found[arch.machine, arch.elf_class] = arch
    return found


def arch_of(machine: int, elf_class: int) -> Arch | None:
    """The architecture of an ELF header; None for one that is not supported."""
    return architectures().get((machine, elf_class))
