# SPDX-License-Identifier: MIT
"""Accesses to watched variables, for reports."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from ftpatch.trace.accesses import Access, Variable
from ftpatch.trace.events import TraceEvents
from ftpatch.trace.header import Tracer
from ftpatch.trace.reader import Trace
from ftpatch.trace.source import Data, Recording, SourceKind
from ftpatch.watch import Watch, watch_line
from ftpatch.watch.accessors import Accessors
from ftpatch.watch.read_accesses import Recorded, read_accesses
from ftpatch.watch.table import Told
from ftpatch.watch.trace_watches import refusal_note

__all__ = ["SOURCES"]


class _Accesses:
    """Accesses, with the names of their accessors."""

    def __init__(self, trace: Trace) -> None:
        self._found = read_accesses(trace)
        self._accessors = Accessors(trace)
        self._known = {
            (header, told.watch): _variable(trace.recording, header, told)
            for header, watches in enumerate(self._found.told)
            for told in watches
            if told is not None
        }

    @property
    def variables(self) -> list[Variable]:
        return [*self._known.values()]

    def __iter__(self) -> Iterator[Access]:
        for one in self._found:
            variable = self._known[one.file, one.watch]
            if variable.meant:
                yield self._shown(one, variable)

    def _shown(self, one: Recorded, variable: Variable) -> Access:
        who = None if one.late else self._accessors.of(one)
        return Access(
            variable=variable,
            thread=one.thread,
            time=one.time,
            cpu=one.cpu,
            kind=self._accessors.kind(one),
            ip=one.ip if who else None,
            function=who.function if who else None,
            place=who.place if who else None,
            before=one.before,
            after=one.after,
        )


class _Watches(TraceEvents):
    """Accesses to variables."""

    @cached_property
    def _accesses(self) -> _Accesses:
        return _Accesses(self.trace)

    def accesses(self) -> _Accesses:
        return self._accesses


def _variable(recording: Recording, header: int, told: Told) -> Variable:
    watch, window = told.watch, recording.window
    return Variable(
        header=header,
        line=watch_line(watch),
        symbol=_named(watch),
        place=_place(recording, header, watch),
        address=watch.address,
        offset=watch.offset,
        length=watch.length,
        type=watch.type,
        hits=told.hits,
        missed=told.missed,
        refusal=told.refusal,
        note=refusal_note(told),
        meant=not window.globs or window.names_match(watch.symbol),
    )


def _named(watch: Watch) -> str:
    """The variable, with its library."""
    return f"{watch.library}:{watch.symbol}" if watch.library else watch.symbol


def _place(recording: Recording, header: int, watch: Watch) -> str:
    """As ``%pS`` prints it, with the symbol's size if the image has it."""
    image = recording.program_of(header).image
    text = f"{_named(watch)}+{watch.offset:#x}"
    if image is None or watch.library:
        return text
    symbols = image.symbols
    there = symbols.value == watch.address - watch.offset
    size = int(symbols.size[there & (symbols.type == symbols.STT_OBJECT)].max(initial=0))
    return f"{text}/{size:#x}" if size else text


_WATCHES: SourceKind = SourceKind(
    what="variable accesses",
    data=Data.ACCESSES,
    default="ksym",
    open=lambda trace: _Watches(_WATCHES, trace),
    tracers=(Tracer.WATCH,),
)
SOURCES = (_WATCHES,)
