# SPDX-License-Identifier: MIT
"""Following a trace in this process, with looks when a test wants them."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from ftpatch.api.report_sources import follow_events
from ftpatch.errors import FtpatchError
from ftpatch.trace import Style
from ftpatch.trace.choose import report_for
from ftpatch.trace.reader import OpenFile, open_files
from ftpatch.trace.source import Origin
from ftpatch.trace.symbolize import Program
from ftpatch.trace.window import Window
from tests.support.command import ftpatch
from tests.support.trace_growing import GrowingFile

__all__ = ["Followed", "Pace", "follow", "in_between", "reported", "without_leaves"]


@dataclass
class Pace:
    """Looks at growing files. After each, as many stores are done as ``steps`` say, and behind
    these all; ``told`` has what was printed up to each look."""

    files: list[GrowingFile]
    steps: list[int] = field(default_factory=list)
    coming: list[Path] = field(default_factory=list)
    looks: int = 0
    over_after: int | None = None
    told: list[int] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    then: Callable[[int], None] = lambda _: None

    @property
    def is_over(self) -> bool:
        """True if it is to look no more."""
        return self.over_after is not None and self.looks >= self.over_after

    def pause(self, *, idle: bool) -> None:
        """The next look comes."""
        self.looks += 1
        self.told.append(len(self.lines))
        count = self.steps.pop(0) if self.steps else None
        for file in self.files:
            file.go_on(count)
        self.then(self.looks)

    def is_written(self, source: OpenFile) -> bool:
        """Test whether there are stores to be done."""
        return not all(file.done for file in self.files)

    def more(self, held: Sequence[OpenFile], *, last: bool) -> list[OpenFile]:
        """Open what comes."""
        coming, self.coming = self.coming, []
        return open_files(coming)

    def removed(self, source: OpenFile) -> None:
        """Take note."""
        self.lost.append(source.header.path.name)


@dataclass(frozen=True)
class Followed:
    """What was printed, line by line; the notes at the end; the error, if there was one."""

    lines: list[str]
    notes: list[str]
    error: str = ""


def follow(
    path: Path,
    pace: Pace,
    name: str | None = None,
    find: Callable[[Origin], Program] = lambda header: Program(None, header.base),
    **window: Any,  # noqa: ANN401 - fields of any type
) -> Followed:
    """Follow a trace; ``find`` its program, which is not known by default."""
    error = ""
    events = follow_events(open_files([path]), Window(**window), pace)
    try:
        events.recording.name_by(find)
        for part in report_for(events, name).render(events, Style(str)):
            text = part.decode() if isinstance(part, bytes) else str(part)
            pace.lines += text.splitlines()
    except FtpatchError as raised:
        error = str(raised)
    finally:
        notes = [note for header in events.recording.headers for note in header.notes]
        notes += events.notes()
        events.close()
    return Followed(pace.lines, notes, error)


def reported(*words: str | Path) -> list[str]:
    """The lines of the finished report, without the notes at its top: those that follow() has."""
    result = ftpatch("report", *words)
    assert result.code == 0, result
    lines = result.out.splitlines()
    notes = [line for line in lines[2:] if re.match(r"# (?![ |]|TID|TASK|PID)", line)]
    return [line for line in lines if line not in notes]


def without_leaves(lines: Sequence[str]) -> list[str]:
    """A graph in which each call has a line for its begin, and one for its end, thread by thread:
    the one line of a call that makes none is where it began, before what others did meanwhile."""
    out = []
    for line in lines:
        leaf = re.fullmatch(r"(.*?\) )(.{14}\|)( +)(\S+?)(\(.*\));(?: /\* (= \S+) \*/)?", line)
        if leaf is None:
            out.append(line)
            continue
        who, spent, indent, name, args, value = leaf.groups()
        out.append(f"{who}{' ' * 14}|{indent}{name}{args} {{")
        out.append(f"{who}{spent}{indent}}} /* {name}{f' {value}' if value else ''} */")
    return sorted(out, key=lambda line: line.partition(") ")[0] if ") " in line else "")


@contextmanager
def in_between(files: Sequence[GrowingFile], drawn: random.Random, share: float) -> Iterator[None]:
    """Let stores be done between two reads of one look."""

    def doing(real: Callable[..., Any]) -> Callable[..., Any]:
        def read(*args: Any) -> Any:  # noqa: ANN401 - as os has it
            if drawn.random() < share:
                for file in files:
                    file.go_on(drawn.randrange(5))
            return real(*args)

        return read

    with (
        mock.patch.object(os, "preadv", doing(os.preadv)),
        mock.patch.object(os, "pread", doing(os.pread)),
    ):
        yield
