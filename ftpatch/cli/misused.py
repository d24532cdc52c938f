# SPDX-License-Identifier: MIT
"""Errors about the words of a command, with what to write instead.

Click finds most of it; what it says of it, in another style and without knowing what the words
mean, is said anew here. Its classes are known by their names: newer versions of Typer bring their
own copy of them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final

from ftpatch.errors import UsageError
from ftpatch.names.suggest import meant, near

__all__ = ["misused", "surplus", "unknown_verb"]

ALIKE = 0.7
"""Similarity from which on an option may have been meant, from 0 to 1."""
ELSEWHERE: Final = {
    "record": "`ftpatch trace -o FILE`",
    "live": "`ftpatch trace`",
    "replay": "`ftpatch report`",
}
"""Verbs of uftrace and perf, and ours."""


def misused(error: Any) -> UsageError | None:  # noqa: ANN401 - click's, whichever copy it is
    """Return what click found, in our words; None where its own do."""
    context = getattr(error, "ctx", None)
    tell = _TOLD.get(type(error).__name__)
    return tell(error, context) if tell is not None and context is not None else None


def _no_such_option(error: Any, context: Any) -> UsageError:  # noqa: ANN401
    name = error.option_name
    word = name.lstrip("-")
    if name.startswith("--") and word in _formats(context, word):
        hint = f"use --format {word}"
    else:
        options = [one for one in context.command.params if one.param_type_name == "option"]
        known = [one for of in options for one in (*of.opts, *of.secondary_opts) if one[:2] == "--"]
        known = ["--help", *known]
        longer = [one for one in known if one.startswith(name) and name.startswith("--")]
        names = {one.removeprefix("--"): one for one in known}
        alike = [names[one] for one in near(word, names, ALIKE)]
        hint = meant(longer or alike, _see(context))
    return UsageError(None, f"no such option {name}", hint)


def _formats(context: Any, word: str) -> list[str]:  # noqa: ANN401
    """The formats of a verb that complete a word."""
    for one in context.command.params:
        if "--format" in one.opts:
            return [item.value for item in one.shell_complete(context, word)]
    return []


def _needs_value(error: Any, context: Any) -> UsageError | None:  # noqa: ANN401
    for one in context.command.params:
        if error.option_name in one.opts and not one.is_flag:
            return UsageError(None, f"{error.option_name} needs a value", f"add {one.metavar}")
    return None


def _missing(error: Any, context: Any) -> UsageError:  # noqa: ANN401
    one = error.param
    name = one.metavar or one.name.upper()
    what = context.command.told(one).partition(";")[0].rstrip(".")
    what = what if what[1:2].isupper() else what[:1].lower() + what[1:]
    return UsageError(None, f"no {name}", f"name {what}" if one.nargs < 0 else f"name one: {what}")


_TOLD: Final[dict[str, Callable[[Any, Any], UsageError | None]]] = {
    "NoSuchOption": _no_such_option,
    "BadOptionUsage": _needs_value,
    "MissingParameter": _missing,
}


def surplus(context: Any, words: Sequence[str]) -> UsageError:  # noqa: ANN401
    """Return the error about words that follow the last argument of a verb. Where a verb selects
    functions, a word that names no file may have been meant as one."""
    params = context.command.params
    names = [one.metavar for one in params if one.param_type_name == "argument"]
    takes = f"one {names[0]}" if len(names) == 1 else f"only {' and '.join(names)}"
    word = words[0]
    selects = any("--filter" in one.opts for one in params) and not _is_path(word)
    hint = f"for functions use -f {word}" if selects else f"remove {word}"
    return UsageError(None, f"{context.info_name} takes {takes}", hint)


def unknown_verb(words: Sequence[str], verbs: Collection[str]) -> UsageError:
    """Return the error about a command line that begins with no verb: with a word that other tools
    have, a program, or a misspelt verb."""
    word, *others = words
    hint = "see `ftpatch --help`"
    if word in ELSEWHERE:
        hint = f"use {ELSEWHERE[word]}"
    elif word == "help":
        hint = f"use `ftpatch {others[0] if others[:1] and others[0] in verbs else 'VERB'} --help`"
    elif _is_path(word):
        path = word if "/" in word else f"./{word}"
        if Path(path).is_file() and os.access(path, os.X_OK):
            hint = f"use `ftpatch trace {path}`"
    elif like := near(word, verbs):
        hint = meant(like, hint)
    elif shutil.which(word):
        hint = f"use `ftpatch trace {word}`"
    return UsageError(None, f"no such command {word!r}", hint)


def _is_path(word: str) -> bool:
    return "/" in word or os.path.lexists(word)


def _see(context: Any) -> str:  # noqa: ANN401
    return f"see `{context.command_path} --help`"
