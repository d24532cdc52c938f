# SPDX-License-Identifier: MIT
"""Filters of watches on a program's variables, with what the program tells of values and
functions."""

from __future__ import annotations

from functools import cached_property

from ftpatch.core.token import Token
from ftpatch.errors import UsageError
from ftpatch.image import Image
from ftpatch.inject.runtime_steps import Row
from ftpatch.names.functions import Functions, read_functions
from ftpatch.watch.access_filter import Values, filter_rows
from ftpatch.watch.variables import Variables
from ftpatch.watch.watches import Watch

__all__ = ["Filtering"]


class Filtering:
    """Translates filters, in which functions are the program's."""

    def __init__(self, program: Image) -> None:
        self._program = program

    def rows(self, text: Token, watch: Watch, variables: Variables) -> tuple[Row, ...]:
        """The steps of the filter ``text`` of a watch on one of these variables. Raises UsageError,
        which names the offending token and its column."""
        type = "" if watch.offset else variables.number_type(watch.symbol, watch.length)
        values = Values(type=type or f"u{8 * watch.length}", length=watch.length)
        return filter_rows(text, values, self._range)

    def _range(self, name: str) -> tuple[int, int]:
        """The addresses behind a function's instructions. Behind its last one the next function may
        begin: an access recorded there is of that one, which was called through the variable."""
        functions = self._functions
        start = functions.names.address(functions.names.spelled(name))
        around = functions.around(start)
        if around is None or around[0] != start:
            raise UsageError(None, f"{name}: no symbol tells how long it is", "name another one")
        return start, around[1] - (functions.around(around[1]) is not None)

    @cached_property
    def _functions(self) -> Functions:
        return read_functions(self._program)
