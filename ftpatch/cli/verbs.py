# SPDX-License-Identifier: MIT
"""The verbs: one file each, imported and made into a command when it is the one that is asked for.

To make all of them costs more than most of them take.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, MutableMapping

import typer
from typer.core import TyperCommand

from ftpatch.cli.help_text import Verb

__all__ = ["RUNS_PROGRAMS", "VERBS", "Verbs", "import_verb"]

VERBS = (
    "status",
    "list",
    "check",
    "enable",
    "disable",
    "undo",
    "diff",
    "extract",
    "probe",
    "watch",
    "boot",
    "report",
    "trace",
)
"""In the order of the help; each is the name of a file here."""
RUNS_PROGRAMS = ("trace", "boot")
"""Verbs whose exit code is that of what they ran."""


def import_verb(name: str) -> Callable[..., object]:
    """Import the function behind a verb."""
    command: Callable[..., object] = importlib.import_module(f"ftpatch.cli.{name}").command
    return command


class Verbs(MutableMapping[str, TyperCommand]):
    """Commands by name, each made when it is looked up."""

    def __init__(self) -> None:
        self._made: dict[str, TyperCommand | None] = dict.fromkeys(VERBS)

    def __getitem__(self, name: str) -> TyperCommand:
        made = self._made[name] or _make(name)
        self._made[name] = made
        return made

    def __setitem__(self, name: str, command: TyperCommand) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


def _make(name: str) -> TyperCommand:
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    # What follows a program's name is the program's.
    settings = {"allow_interspersed_args": False} if name == "trace" else {}
    alone.command(name, cls=Verb, context_settings=settings)(import_verb(name))
    made = typer.main.get_command(alone)
    assert isinstance(made, TyperCommand)
    return made
