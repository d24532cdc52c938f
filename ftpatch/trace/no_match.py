# SPDX-License-Identifier: MIT
"""The error for a name that no function in a recording has."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ftpatch.errors import UsageError
from ftpatch.image import Image
from ftpatch.names.debug_strings import is_in_debug_strings
from ftpatch.names.named_symbols import FUNCTIONS, Named
from ftpatch.names.spelling import like
from ftpatch.names.suggest import SHOWN, any_of, meant
from ftpatch.trace.symbolize import Functions

__all__ = ["no_match"]


def no_match(
    what: str,
    text: str,
    functions: Functions,
    others: Collection[str] = (),
    where: str = "in the trace",
) -> UsageError:
    """Make it; ``what``: the option, ``where`` the functions are. It has the names that may have
    been meant, of functions and ``others``, or says that the function was inlined."""
    kind = "function or probe" if others else "function"
    reason = f"{what} {text!r} matches no {kind} {where}"
    name = text.removeprefix("!")
    if any(_is_inlined(image, name) for image in _images(functions)):
        reason += ": inlined wherever it is called, or no function"
    hint = f"use {any_of(others)}" if 0 < len(others) <= SHOWN else ""
    return UsageError(None, reason, meant(like(text, [*others, *functions.name]), hint))


def _images(functions: Functions) -> Iterator[Image]:
    for program in functions.programs:
        for one in (program, *(library for _, library in program.libraries)):
            if one.image is not None:
                yield one.image


def _is_inlined(image: Image, name: str) -> bool:
    """Test for a name that debug information has, and no symbol."""
    return (
        is_in_debug_strings(image, name)
        and not len(image.symbols.rows_named(name))
        and not Named(image.symbols, FUNCTIONS).find(name)
    )
