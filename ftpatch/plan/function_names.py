"""Functions by their names: those of the symbol tables, of what is imported, and of C++ sources."""

from __future__ import annotations

import numpy as np

from ftpatch.errors import UsageError
from ftpatch.image import Image
from ftpatch.image.symbols import Symbols
from ftpatch.imports import PLT, plt_symbols
from ftpatch.mangled import demangled
from ftpatch.plan.named import FUNCTIONS, SHOWN, Named

__all__ = ["function_named", "returns_twice", "spelled"]

TWICE = ("setjmp", "sigsetjmp", "savectx", "vfork", "getcontext")
"""What returns more than once, underscores aside: special_function_p() of gcc/calls.cc."""


def function_named(image: Image, name: str) -> int:
    """Link address of a function, by its name in a symbol table; of one that is imported, that of
    its entry in the PLT. Raises UsageError where there is none of that name, or several."""
    for symbols, behind in _tables(image):
        rows = symbols.rows_named(name.removesuffix(behind) + behind)
        found = sorted({int(symbols.value[r]) for r in rows if symbols.type[r] in FUNCTIONS})
        if len(found) > 1:
            reason = f"{len(found)} functions are named {name!r}"
            raise UsageError(image.path, reason, f"give one: {', '.join(map(hex, found))}")
        if found:
            return found[0]
    raise _missing(image, name)


def spelled(image: Image, name: str) -> str:
    """A function's name as a symbol table has it, for one that may be a source's. Raises UsageError
    where there is none of that name, or several."""
    tables = _tables(image)
    if any(len(one.rows_named(name.removesuffix(behind) + behind)) for one, behind in tables):
        return name
    for symbols, _ in tables:
        found = Named(symbols, FUNCTIONS).find(name.removesuffix(PLT))
        places = {function_named(image, one): one for one in reversed(found)}
        if len(places) > 1:
            several = ", ".join(f"{at:#x} {demangled(places[at])}" for at in sorted(places))
            reason = f"{len(places)} functions are named {name!r}"
            raise UsageError(image.path, reason, f"give the address of one: {several}")
        if places:
            return next(iter(places.values()))
    raise _missing(image, name)


def returns_twice(image: Image, address: int) -> bool:
    """Whether a symbol says that what begins here returns more than once for a call."""
    return any(
        name.removesuffix(behind).lstrip("_") in TWICE
        for symbols, behind in _tables(image)
        for name in symbols.names(np.flatnonzero(symbols.value == np.uint64(address)))
    )


def _tables(image: Image) -> tuple[tuple[Symbols, str], ...]:
    """Where names are looked for, and what stands behind them there."""
    return (image.symbols, ""), (image.dynamic_symbols, ""), (plt_symbols(image), PLT)


def _missing(image: Image, name: str) -> UsageError:
    tables = _tables(image)
    if any(len(table.rows_named(name, defined=False)) for table, _ in tables[:2]):
        reason = f"{name!r} is imported, and has no entry in the PLT"
        return UsageError(image.path, reason, "probe what calls it")
    like = dict.fromkeys(one for table, _ in tables for one in Named(table, FUNCTIONS).like(name))
    meant = " or ".join([*like][:SHOWN])
    hint = f"did you mean {meant}?" if like else "give its address: 0x..."
    return UsageError(image.path, f"there is no function {name!r}", hint)
