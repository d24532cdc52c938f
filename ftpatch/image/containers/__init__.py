# SPDX-License-Identifier: MIT
"""The containers, one file each, which recognise themselves.

A file here that defines CONTAINER is a container; there is no list of them.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from ftpatch.image.container import Container, ElfKind, RawKind, Wrapper

__all__ = ["containers", "elf_kinds", "raw_kinds", "wrappers"]


@cache
def containers() -> tuple[Container, ...]:
    """All containers, in the order in which they are tried."""
    modules = (import_module(f"{__name__}.{one.name}") for one in pkgutil.iter_modules(__path__))
    found: list[Container] = [module.CONTAINER for module in modules]
    return tuple(sorted(found, key=lambda one: (one.order, one.name)))


@cache
def wrappers() -> tuple[Wrapper, ...]:
    """Those that wrap another file."""
    return tuple(one for one in containers() if isinstance(one, Wrapper))


@cache
def raw_kinds() -> tuple[RawKind, ...]:
    """Images that are not ELF files."""
    return tuple(one for one in containers() if isinstance(one, RawKind))


@cache
def elf_kinds() -> tuple[ElfKind, ...]:
    """Images that are ELF files."""
    return tuple(one for one in containers() if isinstance(one, ElfKind))
