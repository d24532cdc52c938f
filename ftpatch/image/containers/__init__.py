"""The containers, one file each: they recognise themselves.

A file here that says CONTAINER is a container; there is no list of them.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from ftpatch.image.container import Container, ElfKind, RawKind, Wrapper

__all__ = ["containers", "elf_kinds", "raw_kinds", "wrappers"]


@cache
def containers() -> tuple[Container, ...]:
    """All containers, each before those that it has to be asked before."""
    modules = (import_module(f"{__name__}.{one.name}") for one in pkgutil.iter_modules(__path__))
    found: list[Container] = [module.CONTAINER for module in modules]
    return tuple(sorted(found, key=lambda one: (one.order, one.name)))


@cache
def wrappers() -> tuple[Wrapper, ...]:
    """Those that another file lies in."""
    return tuple(one for one in containers() if isinstance(one, Wrapper))


@cache
def raw_kinds() -> tuple[RawKind, ...]:
    """Images that are no ELF files."""
    return tuple(one for one in containers() if isinstance(one, RawKind))


@cache
def elf_kinds() -> tuple[ElfKind, ...]:
    """Images that are ELF files."""
    return tuple(one for one in containers() if isinstance(one, ElfKind))
