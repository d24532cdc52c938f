# SPDX-License-Identifier: MIT
"""Help that names architectures: which those are is asked when help is, and no sooner."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from typing import Any

from ftpatch.cli.plain_values import PlainCommand

__all__ = ["ArchCommand", "help_width"]

USUAL = 52
"""Columns from which on click's own width fits a terminal."""


def help_width() -> dict[str, int]:
    """The setting of a command whose help is for a narrow terminal."""
    columns = shutil.get_terminal_size().columns
    return {"terminal_width": columns - 2} if columns < USUAL and sys.stdout.isatty() else {}


class ArchCommand(PlainCommand):
    """A command in whose help ``{kernels}`` and ``{sinks}`` stand for what the boot tracer has."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's own click
        """Fill in the words and write the help."""
        for parameter in self.params:
            if getattr(parameter, "help", None):
                setattr(parameter, "help", self.told(parameter))  # noqa: B010
        super().format_help(ctx, formatter)

    def told(self, parameter: Any) -> str:  # noqa: ANN401
        """Return the help text of a parameter, with the words filled in."""
        text = super().told(parameter)
        for word, said in (("{kernels}", _kernels), ("{sinks}", _sinks)):
            text = text.replace(word, said()) if word in text else text
        return text


def _kernels() -> str:
    """``arm64, i386 or x86_64``."""
    from ftpatch.arch import supporting

    return _listed(supporting("boot"), "or")


def _sinks() -> str:
    """``semihosting on arm64; debugcon (default) or serial on i386 and x86_64``."""
    from ftpatch.arch import supporting
    from ftpatch.arch.boot import boot_tracer_of

    having: dict[tuple[str, ...], list[str]] = {}
    for arch in supporting("boot"):
        having.setdefault(tuple(boot_tracer_of(arch).sinks), []).append(arch)
    told = []
    for (default, *others), names in having.items():
        words = [f"{default} (default)", *others] if others else [default]
        told.append(f"{_listed(words, 'or')} on {_listed(names, 'and')}")
    return "; ".join(told)


def _listed(words: Iterable[str], last: str) -> str:
    *first, end = words
    return f"{', '.join(first)} {last} {end}" if first else end
