# SPDX-License-Identifier: MIT
"""Members and elements of variables, by the types that debug information tells.

    cart.total   prices[2]   shop::carts[1].owner.name[0]

What a pointer points to has no place in the file: only the process knows it.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property

from ftpatch.debuginfo.debug_info import DebugInfo
from ftpatch.debuginfo.dies import UnusableError
from ftpatch.debuginfo.number_type import number_type
from ftpatch.debuginfo.source_names import SourceName, Step
from ftpatch.debuginfo.source_variables import SourceVariables
from ftpatch.debuginfo.value_parts import Part, size_of, stripped
from ftpatch.debuginfo.value_places import InMemory, NoValueError, Word
from ftpatch.debuginfo.value_steps import dereferenced, refusing, taken
from ftpatch.errors import UsageError
from ftpatch.image import Image
from ftpatch.names.spelling import last_word

__all__ = ["VariableParts"]


class VariableParts:
    """The parts of an image's variables, read on demand."""

    def __init__(self, image: Image) -> None:
        self._image = image

    def find(self, name: SourceName, start: int) -> tuple[int, int, str]:
        """Link address, size (bytes) and type (``number_type``) of a part of the variable at
        ``start``. Raises UsageError for one that it does not have, or that is elsewhere; InputError
        if there is no debug information, or if it cannot be read."""
        try:
            return self._found(name, start)
        except UsageError as error:
            raise UsageError(self._image.path, error.reason, error.hint) from None

    def type(self, name: str, start: int) -> str:
        """The type (``number_type``) of the variable ``name`` at ``start``, empty for no number.
        Raises InputError if there is no debug information, or if it cannot be read."""
        with self._info.readable(), suppress(NoValueError, UnusableError):
            die = self._variables.at(start, last_word(name))
            return number_type(stripped(die)) if die is not None else ""
        return ""

    def _found(self, name: SourceName, start: int) -> tuple[int, int, str]:
        with self._info.readable():
            with refusing(name.name):
                die = self._variables.at(start, last_word(name.name.text))
                if die is None:
                    reason = "the debug information does not tell what this is"
                    raise name.name.refuse(reason, "compile it with -g")
                variable = InMemory(start=Word(start=start)), Part(offset=0, die=stripped(die))
                place, part = dereferenced(*variable)
            if place != variable[0]:
                raise name.name.refuse("a reference, whose address is known only at run time")
            for step in name.steps:
                place, part = taken(place, part, (step,))
                if not isinstance(place, InMemory) or place.address is None:
                    raise _elsewhere(step)
            last = name.steps[-1].token
            with refusing(last, last.cut(-last.start)):
                size = size_of(part.die, part.dimension)
                type = number_type(part.die)
        return start + place.offset + part.offset, size, type

    @cached_property
    def _info(self) -> DebugInfo:
        return DebugInfo.of(self._image.elf, self._image.path)

    @cached_property
    def _variables(self) -> SourceVariables:
        return SourceVariables(self._info)


def _elsewhere(step: Step) -> UsageError:
    """The error for what is behind a pointer."""
    if step.mark == ".":
        return step.token.refuse("a reference, whose address is known only at run time")
    before = step.before.text
    reason = f"{before} is a pointer, and where it points to is known only at run time"
    return step.token.refuse(reason, f"watch {before} itself")
