# SPDX-License-Identifier: MIT
"""Listings of names for probes: the lines of a function that have code, the values at a place.

The lines are printed as `perf probe -L` does: only those with a number can be probed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ftpatch.errors import InputError, UsageError
from ftpatch.image import Image
from ftpatch.names.functions import read_functions
from ftpatch.probe.debug_names import DebugNames
from ftpatch.probe.definition import Fetch, Source
from ftpatch.probe.grammar import parse_probe
from ftpatch.probe.text import value_text

__all__ = ["function_lines", "named_values"]

MAX_SOURCE = 1 << 26
"""Maximum size of a source file (bytes)."""
MAX_LINES = 1 << 14
"""Of a function."""


def function_lines(image: Image, function: str) -> list[str]:
    """The lines of a function, with the source if it is where it was compiled. Raises UsageError
    and InputError."""
    functions = read_functions(image)
    names = DebugNames(functions)
    file, first, code = names.function_lines(names.spelled(function))
    if not code or not 0 < first <= max(code) < first + MAX_LINES:
        raise InputError(image.path, f"the debug information has no lines of {function}")
    source = _source(file)
    out = [f"<{function}@{file}:{first}>"]
    for line in range(first, max(code) + 1):
        text = source[line - 1] if line <= len(source) else ""
        if line in code or source:
            out.append(f"{line if line in code else '':>6}  {text}".rstrip())
    return out


def named_values(image: Image, place: str) -> list[str]:
    """The parameters and variables at FUNC, FUNC+OFFSET or FILE:LINE: what is fetched of each, or
    why it cannot be. Raises UsageError and InputError."""
    functions = read_functions(image)
    names, plain = DebugNames(functions), parse_probe(f"p {place}", (), arguments=0)
    symbol = plain.symbol and names.spelled(plain.symbol)
    try:
        known = names.values(names.completed(replace(plain, symbol=symbol))).known()
    except UsageError as error:
        raise UsageError(error.path or image.path, error.reason, error.hint) from None
    width = max((len(name) for name, _ in known), default=0)
    out = [f"<{place}>"]
    for name, held in known:
        if isinstance(held, Fetch):
            text = value_text(held)
            if held.source is Source.VARIABLE:
                text = "a structure: name its members"
        else:
            text = f"({held.reason})"
        out.append(f"  {name:{width}}  {text}")
    return out


def _source(file: str) -> list[str]:
    """The lines of a source file; none if it cannot be read."""
    path = Path(file)
    try:
        if not path.is_file() or path.stat().st_size > MAX_SOURCE:
            return []
        text = path.read_text(errors="backslashreplace")
    except OSError:
        return []
    kept = (c if c.isprintable() or c in "\n\t" else "?" for c in text)
    return "".join(kept).expandtabs().split("\n")
