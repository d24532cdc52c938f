# SPDX-License-Identifier: MIT
"""The verbs: one file each, imported and made into a command when it is the one that is asked for.

To make all of them costs more than most of them take.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

import typer
from typer.core import TyperCommand

from ftpatch.cli.help_text import ArchCommand, help_width

__all__ = ["READING", "VERBS", "Verbs", "import_verb", "runs_program"]

VERBS = (
    "status",
    "list",
    "check",
    "enable",
    "disable",
    "undo",
    "diff",
    "extract",
    "trace",
    "probe",
    "watch",
    "boot",
    "report",
)
"""In the order of the help; each is the name of a file here."""
READING = ("status", "list", "check", "diff")
"""Verbs that write no image."""
RUNNING = ("trace", "boot")
"""Verbs whose exit code is that of what they ran."""


def import_verb(name: str) -> Callable[..., object]:
    """Import the function behind a verb."""
    command: Callable[..., object] = importlib.import_module(f"ftpatch.cli.{name}").command
    return command


def runs_program(words: Sequence[str]) -> bool:
    """Test whether a command line, without ftpatch's own name, runs a program or kernel, and ends
    with its exit code."""
    verb, *others = words or [""]
    probes = verb == "probe" and any(word.startswith("-c") for word in others)
    return probes or verb in RUNNING


class Verbs(Mapping[str, TyperCommand]):
    """Commands by name, each made when it is looked up."""

    def __getitem__(self, name: str) -> TyperCommand:
        if name not in VERBS:
            raise KeyError(name)
        return _make(name)

    def __iter__(self) -> Iterator[str]:
        return iter(VERBS)

    def __len__(self) -> int:
        return len(VERBS)


@cache
def _make(name: str) -> TyperCommand:
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    # What follows a program's name is the program's.
    own = {"allow_interspersed_args": False} if name == "trace" else {}
    # Click would take these from the group, and keep what the first caller's group has.
    settings = {**help_width(), "help_option_names": ["-h", "--help"], **own}
    alone.command(name, cls=ArchCommand, context_settings=settings)(import_verb(name))
    made = typer.main.get_command(alone)
    assert isinstance(made, TyperCommand)
    return made
