#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the manual pages, one for ftpatch and one for each verb, from what `--help` says.

man_pages.py FOLDER
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ftpatch import __version__
from ftpatch.cli.app import command_line
from ftpatch.cli.verbs import VERBS

WIDTH = 60
"""Characters of a line, before what roff wants to have marked is."""
WHOLE: Any = {"break_long_words": False, "break_on_hyphens": False}
VERBATIM = "\b"
EXIT = """\
.TP
.B 0
Done; nothing differs; nothing found.
.TP
.B 1
A site was refused and nothing was written; check found something; files differ.
.TP
.B 2
Usage, unreadable or unsupported input, I/O.
"""
RUNS = """\
The status of the program that was run, or 125 if ftpatch itself failed.
"""
ENVIRONMENT = {
    "FTPATCH_TRACE": "File that a traced, probed or watched program records to.",
    "FTPATCH_TRACE_SIZE": "Size of that file, such as 64M [default: that of --size].",
    "FTPATCH_TRACE_RING": "If not empty, as --ring; 0: as without it.",
    "FTPATCH_TRACE_ROTATE": "Number of full files to keep, as with --rotate; 0: as without it.",
    "FTPATCH_TRACE_SIGNAL": "Signal that switches recording, as with --signal; 0: none.",
    "FTPATCH_TRACE_OFF": "If not empty, as --off; 0: as without it.",
    "FTPATCH_DEBUG": "If not empty, an internal error prints a traceback.",
    "PAGER": "Program that shows reports longer than the screen [default: less -RF; empty: none].",
    "NO_COLOR": "If not empty, nothing is coloured.",
    "XDG_RUNTIME_DIR": "Folder of the journals of running processes, if not root's: in "
    "$XDG_RUNTIME_DIR/ftpatch.",
}
SEE_ALSO = {
    "status": ("list", "check"),
    "list": ("status", "enable"),
    "check": ("status", "diff"),
    "enable": ("disable", "undo", "report"),
    "disable": ("enable", "undo"),
    "undo": ("diff", "enable"),
    "diff": ("undo", "check"),
    "extract": ("status", "check"),
    "trace": ("report", "probe", "watch", "enable"),
    "probe": ("report", "trace", "undo"),
    "watch": ("report", "probe", "undo"),
    "boot": ("report", "enable"),
    "report": ("trace", "probe", "watch", "boot"),
}


def main(folder: Path) -> None:
    """Write all pages."""
    folder.mkdir(parents=True, exist_ok=True)
    root: Any = command_line()
    (folder / "ftpatch.1").write_text("".join(_overview(root)))
    for verb in VERBS:
        (folder / f"ftpatch-{verb}.1").write_text("".join(_page(verb, root.commands[verb])))


def _overview(root: Any) -> Iterator[str]:  # noqa: ANN401 - click's, whichever copy it is
    summary, _, _ = _parts(root.help)
    yield _head("ftpatch", summary.partition(":")[0])
    yield ".SH SYNOPSIS\n.B ftpatch\n.I COMMAND\n[\\fIOPTIONS\\fR]\n[\\fIARGUMENTS\\fR]\n"
    yield f".SH DESCRIPTION\n{_text(summary)}\n.SH COMMANDS\n"
    for verb in VERBS:
        first, _, _ = _parts(root.commands[verb].help)
        yield f".TP\n.BR ftpatch\\-{verb} (1)\n{_text(first)}\n"
    yield f".SH EXIT STATUS\n{EXIT}"
    yield ".PP\n.B trace\nand\n.B boot\nend with the status of what they ran, or with 125.\n"
    yield ".SH ENVIRONMENT\n"
    yield from (f".TP\n.B {name}\n{_text(what)}\n" for name, what in ENVIRONMENT.items())
    others = (f".BR ftpatch\\-{verb} (1)" for verb in VERBS)
    yield ".SH SEE ALSO\n" + ",\n".join(others) + "\n"


def _page(verb: str, command: Any) -> Iterator[str]:  # noqa: ANN401
    summary, more, example = _parts(command.help)
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option"]
    yield _head(f"ftpatch-{verb}", summary.rstrip("."))
    yield f".SH SYNOPSIS\n.B ftpatch {verb}\n[\\fIOPTIONS\\fR]\n"
    for one in arguments:
        name = f"\\fI{_quoted(_metavar(one))}\\fR"
        name += " ..." if one.nargs == -1 or one.multiple else ""
        yield f"{name}\n" if one.required else f"[{name}]\n"
    yield f".SH DESCRIPTION\n{_text(summary)}\n"
    yield from (f".PP\n{_paragraph(part)}\n" for part in more)
    if arguments:
        yield ".SH ARGUMENTS\n"
        yield from (
            f".TP\n.I {_quoted(_metavar(one))}\n{_text(command.told(one))}\n" for one in arguments
        )
    yield ".SH OPTIONS\n"
    for one in options:
        names = ", ".join(f"\\fB{_quoted(name)}\\fR" for name in (*one.opts, *one.secondary_opts))
        value = "" if one.is_flag else f" \\fI{_quoted(_metavar(one))}\\fR"
        yield f".TP\n{names}{value}\n{_said(command, one)}\n"
    yield ".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nShow a summary of this page.\n"
    yield f".SH EXIT STATUS\n{RUNS if verb in ('trace', 'boot') else EXIT}"
    if example:
        yield f".SH EXAMPLES\n.nf\n{_quoted(example)}\n.fi\n"
    others = "".join(f",\n.BR ftpatch\\-{name} (1)" for name in SEE_ALSO[verb])
    yield f".SH SEE ALSO\n.BR ftpatch (1){others}\n"


def _said(command: Any, parameter: Any) -> str:  # noqa: ANN401
    """What `--help` says of a parameter, with its default and its range."""
    bare = parameter.help or ""
    _, shown = parameter.get_help_record(command.make_context("", [], resilient_parsing=True))
    return _text(command.told(parameter) + shown.removeprefix(bare))


def _head(name: str, what: str) -> str:
    what = what[0].lower() + what[1:] if what[1:2].islower() else what
    licence = '.\\" SPDX-License-Identifier: MIT\n'
    title = name.upper().replace("-", "\\-")
    top = f'{licence}.TH {title} 1 "" "ftpatch {__version__}"\n'
    return f"{top}.SH NAME\n{_quoted(name)} \\- {_quoted(what)}\n"


def _metavar(parameter: Any) -> str:  # noqa: ANN401
    return str(parameter.metavar or parameter.name.upper())


def _parts(help_: str) -> tuple[str, list[str], str]:
    """The first sentence, further paragraphs, and the example without its word."""
    first, *rest = (part.strip("\n") for part in inspect.cleandoc(help_).split("\n\n"))
    example = next((part for part in rest if part.startswith("Example: ")), "")
    more = [part for part in rest if part and part != example]
    return " ".join(first.split()), more, example.removeprefix("Example: ")


def _paragraph(text: str) -> str:
    """One of a help: running text, or behind click's mark lines that stay as they are."""
    if not text.startswith(VERBATIM):
        return _text(text)
    lines = text.removeprefix(VERBATIM).strip("\n").splitlines()
    return "\n".join([".nf", *map(_quoted, lines), ".fi"])


def _text(text: str | None) -> str:
    """Running text, with each sentence on a line of its own, as roff has it."""
    said = re.sub(r"\s+", " ", text or "").strip()
    sentences = re.split(r"(?<=[.!?]) (?=[A-Z])", said)
    lines = (line for sentence in sentences for line in textwrap.wrap(sentence, WIDTH, **WHOLE))
    return "\n".join(map(_quoted, lines))


def _quoted(text: str) -> str:
    """Text that roff takes as it is."""
    out = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga")
    out = out.replace("'", "\\(aq").replace("^", "\\(ha").replace("~", "\\(ti")
    return f"\\&{out}" if out.startswith((".", "'")) else out


if __name__ == "__main__":
    main(Path(sys.argv[1]))
