# SPDX-License-Identifier: MIT
"""Jumps in a kernel on disk, for probes where no site is.

    do_x+0x30   48 89 fb 49 89 f5   ->   e9 rel32 f5   leads to the hook, behind which both run

What rules out a jump in a program does so in a kernel; and a kernel changes its own text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.kernel_text import kernel_mover_of, kernel_text_of
from ftpatch.errors import UsageError
from ftpatch.ftrace.sites import Sites
from ftpatch.inject.own_text import OwnText
from ftpatch.inject.probe_methods import JUMP, Methods, NoMethod
from ftpatch.names.functions import Functions

__all__ = ["KernelJump", "KernelJumps"]

HINT = "probe another place"
EVENTS = "use --print-events and the running kernel"


@dataclass(frozen=True)
class KernelJump:
    """The place of a jump (``site``, behind a landing pad), and the instructions that it
    ``displaced``, whole ones."""

    site: int
    displaced: bytes


class KernelJumps:
    """Finds room in one kernel."""

    def __init__(self, sites: Sites, functions: Functions) -> None:
        self._sites, self._image = sites, sites.image
        self.functions = _unsigned(functions)
        self._mover = kernel_mover_of(sites.arch.name)
        self._text = kernel_text_of(sites.arch.name)
        without = self._text.no_tables and self._image.symbols.find(self._text.no_tables)
        self._methods = Methods(
            self._image,
            sites.arch,
            self._mover,
            self.functions,
            set(),
            tables=not without,
            guarded=_is_guarded(sites),
        )

    def at(self, address: int, until: int | None) -> KernelJump:
        """Find room for a jump at an address; ``until``: address of the next probe. Raises
        UsageError with the reason if there can be none."""
        around = self.functions.around(address)
        if around is None:
            raise self._error(address, "the end of its function is unknown", EVENTS)
        against = self._own.against_function(around[0])
        if against:
            raise self._error(address, against, HINT)
        try:
            chosen = self._methods.choose(address, optimize=True, until=until, methods=(JUMP,))
        except NoMethod as error:
            raise self._error(address, error.why, EVENTS) from None
        except UsageError as error:  # no instruction begins there
            raise self._error(address, error.reason, EVENTS) from None
        start, end = self._methods.span(chosen)
        code = chosen.code[: end - start]
        against = self._own.against(start, code)
        if against:
            raise self._error(address, against, EVENTS)
        return KernelJump(start, code)

    @cached_property
    def _own(self) -> OwnText:
        return OwnText(self._sites, self._text)

    def _error(self, address: int, why: str, hint: str) -> UsageError:
        (place,) = self._image.kallsyms.places(np.array([address], np.uint64))
        return UsageError(self._image.path, f"no jump at {place or hex(address)}: {why}", hint)


def _is_guarded(sites: Sites) -> bool:
    """Return whether compiled functions begin with a landing pad: then so does paciasp. The
    kernel's assembly has pads in any case, but no sites."""
    arch, elf = sites.arch, sites.image.elf
    if not arch.landing_size:
        return False
    at = sites.ip - np.uint64(sites.lead + arch.landing_size)
    code, there = elf.gather(elf.offset_of(at, executable=True), arch.around)
    return bool(arch.landing(code)[there].any())


def _unsigned(functions: Functions) -> Functions:
    """Functions by unsigned addresses: a kernel's are in the upper half."""

    def column(held: NDArray[np.int64]) -> Any:  # noqa: ANN401
        return held.view(np.uint64)

    start, end, reach = map(column, (functions.start, functions.end, functions.reach))
    return replace(functions, start=start, end=end, reach=reach)
