# SPDX-License-Identifier: MIT
"""Words of the command line that are taken as they are.

Newer versions of Typer have pydantic look at every value, and to load it is a quarter of what
the start of a command takes. Words and paths need no looking at, and what is wrong with a number is
said in fewer words; all else is still Typer's.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

from typer.core import TyperCommand, TyperGroup

from ftpatch.cli.misused import surplus, unknown_verb
from ftpatch.errors import UsageError

__all__ = ["PlainCommand", "PlainGroup"]

PLAIN: tuple[type, ...] = (str, Path)
NUMBER = re.compile("[+-]?[0-9]+")
NAME = re.compile(r"[A-Za-z][\w.-]*", re.ASCII)
TIME = re.compile("(.*[0-9.]) *(ns|us|ms|s)")
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}
"""Seconds."""
DIGITS = 18
"""Those that a column of numbers can hold."""
CHECKS = ("parser", "exists", "writable", "resolve_path", "allow_dash", "path_type")
"""Settings of a parameter that ask for more than its words."""


class PlainCommand(TyperCommand):
    """A command that takes plain values as they are."""

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401 - typer's own click
        """Its parameters, and --help."""
        return _taking_plain(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Parse the words. Raises UsageError for those that follow the last argument."""
        ctx.allow_extra_args = not ctx.resilient_parsing
        try:
            rest = super().parse_args(ctx, [_not_option(word) for word in args])
        except Exception as error:
            if getattr(error, "ctx", ctx) is None:  # an option without its value
                setattr(error, "ctx", ctx)  # noqa: B010 - click's, whichever copy it is
            raise
        if rest and not ctx.resilient_parsing:
            raise surplus(ctx, rest)
        return rest

    def told(self, parameter: Any) -> str:  # noqa: ANN401
        """Return the help text of a parameter."""
        return parameter.help or ""


def _not_option(word: str) -> str:
    """A word as options are told from others: ``-:NAME`` takes a probe away."""
    return f" {word}" if word.startswith("-:") else word


class PlainGroup(TyperGroup):
    """Commands together, the words before which are taken as they are."""

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401 - typer's own click
        """Its own parameters, and --help."""
        return _taking_plain(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        """The command that words begin with. Raises UsageError if there is none."""
        if args[0] not in self.commands and args[0][:1] != "-" and not ctx.resilient_parsing:
            raise unknown_verb(args, self.commands)
        return super().resolve_command(ctx, args)


def _taking_plain(parameters: list[Any]) -> list[Any]:
    """Have parameters that are words or paths give them as they are, and flags that are not given
    nothing. Versions of Typer that load nothing for that are left alone."""
    for one in parameters:
        if one.param_type_name == "argument" and hasattr(one, "display_type_rich"):
            one.display_type_rich = _nothing  # its name says enough: IMAGE, not IMAGE <list[Path]>
        kind = getattr(one, "type_descriptor", None)
        if kind is None or getattr(one, "_runtime_param", one) is not None:
            continue
        info, of = kind.parameter_info, kind.annotation
        of = get_args(of)[0] if get_origin(of) is list else of
        anything = info.file_okay and info.dir_okay
        plain = of in PLAIN and anything and not any(getattr(info, name, None) for name in CHECKS)
        if of in (int, float) and not info.clamp:
            one._runtime_param = _Numbers(of, info.min, info.max, one.metavar == "PID")
        else:
            one._runtime_param = _Words(of if plain else None, info.readable)
    return parameters


def _nothing(**_: object) -> str:
    return ""


@dataclass(frozen=True)
class _Words:
    """What Typer asks for a parameter's value. ``of``: the type of each word, None if that takes
    more than to call it. ``readable``: a path must be, if there is a file."""

    of: type | None
    readable: bool

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401 - typer's own
        """The value; where it is not plain, as Typer makes it."""
        many = param.multiple or param.nargs == -1
        if value is None:
            return () if many else None
        words = value if many and isinstance(value, list | tuple) else [value]
        if self.of is Path and "" in words:  # which Path would take for the current directory
            raise UsageError(None, "an empty path", "use . for the current directory")
        if many == (words is value) and self.of and all(map(self._is_plain, words)):
            made = [self.of(word) for word in words]
            return made if many else made[0]
        param._runtime_param = None  # made by Typer when it is asked for
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)

    def _is_plain(self, word: object) -> bool:
        if not isinstance(word, str):
            return False
        unread = self.of is Path and self.readable and os.path.lexists(word)
        return not unread or os.access(word, os.R_OK)


@dataclass(frozen=True)
class _Numbers:
    """The same of numbers between two, each None where there is no limit; ``of``: int, or float for
    seconds, behind which another unit may stand. ``pid``: it is a process."""

    of: type[int] | type[float]
    least: float | None
    most: float | None
    pid: bool = False

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401 - typer's own
        """The value. Raises UsageError for a word that is no such number."""
        many = param.multiple or param.nargs == -1
        if value is None:
            return () if many else None
        if many:
            return [self._number(word, param, ctx) for word in value]
        return self._number(value, param, ctx)

    def _number(self, word: object, param: Any, ctx: Any) -> int | float:  # noqa: ANN401
        name, hint = param.opts[-1], f"see `{ctx.command_path} --help`"
        try:
            number = self._parsed(str(word))
        except ValueError as error:
            if self.pid and NAME.fullmatch(str(word)):
                hint = f"find it with `pgrep {word}`"
            raise UsageError(None, f"{name} {str(word)!r} {error}", hint) from None
        for limit, beyond, what in (
            (self.least, number < (self.least or 0), "less"),
            (self.most, number > (self.most or 0), "more"),
        ):
            if limit is not None and beyond:
                raise UsageError(None, f"{name} {word} is {what} than {limit:g}", hint)
        return number

    def _parsed(self, word: str) -> int | float:
        """Raises ValueError with the rest of a sentence about the word."""
        if self.of is float:
            found = TIME.fullmatch(word)
            number, unit = found.groups() if found else (word, "s")
            try:
                return float(number) * UNITS[unit]
            except ValueError:
                raise ValueError("is not a time") from None
        if not NUMBER.fullmatch(word):
            raise ValueError(f"is not a {'process' if self.pid else 'whole'} number")
        if len(word) > DIGITS:
            raise ValueError(f"has more than {DIGITS} digits")
        return int(word)
