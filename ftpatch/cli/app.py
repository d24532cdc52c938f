# SPDX-License-Identifier: MIT
"""The verbs together, and the way from every failure to a line and an exit code."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ftpatch import __version__
from ftpatch.cli.console import error_line
from ftpatch.cli.help_text import help_width
from ftpatch.cli.limits import is_out_of_memory, limit_hint
from ftpatch.cli.misused import misused
from ftpatch.cli.plain_values import PlainGroup
from ftpatch.cli.progress import PROGRESS
from ftpatch.cli.signals import handle_signals
from ftpatch.cli.verbs import READING, VERBS, Verbs, import_verb, runs_program
from ftpatch.errors import Exit, FtpatchError
from ftpatch.io.cleanup import CLEANUP

__all__ = ["command_line", "run"]

COMPLETE = "_FTPATCH_COMPLETE"
"""Environment variable by which a shell asks for completions."""
_app = typer.Typer(
    name="ftpatch",
    cls=PlainGroup,
    help="ftrace for ELF files and running processes: turn call sites into NOPs and calls, "
    "verified the way ftrace verifies.\n\nExample: ftpatch trace --libcalls ls -l",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# Typer brings its own copy of click in newer versions; the base class is the same in both.
ClickError: type[Exception] = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)


@_app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    cflags: Annotated[
        bool,
        typer.Option("--cflags", help="Print the compiler's flags for a stub of your own."),
    ] = False,
) -> None:
    if version:
        typer.echo(f"ftpatch {__version__}")
        raise typer.Exit()
    if cflags:
        from ftpatch.inject.stub import FLAGS
        from ftpatch.layout.built import headers

        typer.echo(" ".join((*FLAGS, f"-I{headers()}")))
        raise typer.Exit()


def run() -> int:
    """The command line's exit code. Signals that end it take the output in the making away."""
    if sys.argv[1:] and sys.argv[1] in VERBS:  # before a signal can break into the import
        import_verb(sys.argv[1])
    handle_signals()
    if sys.argv[1:] and sys.argv[1] in VERBS:
        CLEANUP.writes = sys.argv[1] not in READING
        PROGRESS.begin(sys.argv[1])
    completes = os.environ.get(COMPLETE, "").startswith("complete")
    code = _complete() if completes else _run()
    PROGRESS.end()
    try:
        sys.stdout.flush()
    except OSError as error:
        done = "; the output is written" if CLEANUP.appeared else ""
        error_line(f"standard output: {error.strerror}{done}")
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - or the exit tries again
        return CLEANUP.failure
    return code


@cache
def command_line() -> TyperGroup:
    """Make the command line, without the verbs: each is made when it is asked for."""
    group = typer.main.get_command(_app)
    assert isinstance(group, TyperGroup)
    verbs: Any = Verbs()  # the base class of commands is elsewhere in newer versions of Typer
    group.commands = verbs
    group.context_settings.update(help_width())
    return group


def _complete() -> int:
    """Offer a shell what may follow: nothing where that makes no sense, and no word of why, which
    would stand in the middle of the line that is typed."""
    try:
        if "COMP_CWORD" in os.environ:  # bash's: a word, or the one that follows the last
            words = os.environ["COMP_WORDS"].split()
            if not 0 <= int(os.environ["COMP_CWORD"]) <= len(words):
                return int(Exit.DONE)
        command_line()(prog_name="ftpatch", standalone_mode=False)
    except Exception:
        if os.environ.get("FTPATCH_DEBUG"):
            raise
    return int(Exit.DONE)


def _with_limit(told: str, error: Exception) -> str:
    """Add the limit to raise to what is told of an error, if one led to it."""
    hint = limit_hint(error)
    return f"{told}; {hint}" if hint else told


def _run() -> int:
    own = runs_program(sys.argv[1:])
    CLEANUP.failure = int(Exit.OWN if own else Exit.ERROR)
    try:
        code = command_line()(prog_name="ftpatch", standalone_mode=False)
    except FtpatchError as error:
        error_line(_with_limit(str(error), error))
        return int(Exit.OWN if own else error.exit)
    except ClickError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(getattr(error, "format_message")(), err=True)  # noqa: B009
            return int(Exit.ERROR)
        context = getattr(error, "ctx", None)
        told = misused(error)
        where = f"; see `{context.command_path} --help`" if context is not None else ""
        message = getattr(error, "format_message")()  # noqa: B009 - click's, whichever copy it is
        if message:
            error_line(str(told) if told is not None else message.rstrip(".") + where)
        return CLEANUP.failure
    except OSError as error:
        done = "; the output is written" if CLEANUP.appeared else ""
        what = f"{error.filename or 'standard output'}: {error.strerror}{done}"
        error_line(_with_limit(what, error))
        return CLEANUP.failure
    except Exception as error:
        if is_out_of_memory(error):
            error_line(_with_limit("out of memory", error))
            return CLEANUP.failure
        if os.environ.get("FTPATCH_DEBUG"):
            raise
        kind = type(error).__name__
        error_line(f"internal error: {kind}: {error}; please report (FTPATCH_DEBUG=1: traceback)")
        return CLEANUP.failure
    return code if isinstance(code, int) else int(Exit.DONE)
