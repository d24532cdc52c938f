"""Style shared by all formats: names, times, and lines made in bulk."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.names import Functions
from ftpatch.trace.reader import Trace
from ftpatch.trace.rows import Rows

__all__ = ["Callers", "Look", "Strings", "called", "returned", "strings"]

Strings = NDArray[np.object_]
SIGNATURE = re.compile(r"\)( const| volatile| &&?| noexcept| \[clone [^]]*\])*$")
"""Suffix of a name that has parameters."""
ERRORS = 4095
"""The largest error number that a return value may be (MAX_ERRNO of the kernel's err.h)."""


@dataclass
class Look:
    """``clean`` makes text from a file fit for a terminal; ``notes`` are the clauses that a text
    report begins with."""

    clean: Callable[[str], str]
    notes: Sequence[str] = ()
    _names: list[str] = field(default_factory=list)

    def names(self, functions: Functions) -> list[str]:
        """Names of all functions, clean."""
        self._names += map(self.clean, functions.name[len(self._names) :])
        return self._names


class Callers:
    """Names of the places to which calls return."""

    def __init__(self, trace: Trace, clean: Callable[[str], str]) -> None:
        self._trace, self._clean = trace, clean

    def of(self, rows: Rows) -> list[str]:
        """One for each row; empty where unknown."""
        out = np.full(len(rows), "", object)
        file = self._trace.chunks.owner[rows.thread]
        known = (rows.flags & Rows.VALUE) > 0
        for number in np.unique(file[known]).tolist():
            at = np.flatnonzero(known & (file == number))
            address, index = np.unique(rows.value[at], return_inverse=True)
            program = self._trace.functions.programs[self._trace.program[number]]
            header = self._trace.headers[number]
            found = program.callers(address, header.bias, header.libraries)
            names = [self._clean(name) for name in found]
            out[at] = np.array(names, object)[index]
        return list(out.tolist())


def strings(values: NDArray[np.int64], make: Callable[[int], str]) -> Strings:
    """The text of each number, object[n]; made once for equal ones."""
    distinct, index = np.unique(values, return_inverse=True)
    made = np.empty(len(distinct), object)
    made[:] = [make(value) for value in distinct.tolist()]
    return np.asarray(made[index], object)


def called(name: str, args: str) -> str:
    """A call as ftrace writes it; where a C++ name has its parameters, they are the parentheses."""
    return name if not args and SIGNATURE.search(name) else f"{name}({args})"


def returned(value: int) -> str:
    """Format a return value as print_graph_retval() does: hexadecimal, but for what may be an
    error, of 32 or of 64 bits."""
    for bits in (32, 64):
        if 0 < (1 << bits) - value <= ERRORS:
            return str(value - (1 << bits))
    return hex(value)
