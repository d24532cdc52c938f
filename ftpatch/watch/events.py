# SPDX-License-Identifier: MIT
"""Accesses to watched variables, for reports."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.accesses import Access, Variable
from ftpatch.trace.events import TraceEvents
from ftpatch.trace.followed import Followed
from ftpatch.trace.header import Tracer
from ftpatch.trace.held_columns import HeldColumns
from ftpatch.trace.reader import Opened, Trace
from ftpatch.trace.source import Data, Recording, SourceKind
from ftpatch.trace.stacks import Stacks
from ftpatch.watch import Watch, watch_line
from ftpatch.watch.access_stacks import AccessStacks, has_stacks
from ftpatch.watch.accessors import Accessors
from ftpatch.watch.read_accesses import (
    PLACE,
    WORDS,
    Recorded,
    places_of,
    read_accesses,
    recorded,
    watches_of,
    words_behind,
)
from ftpatch.watch.table import Told
from ftpatch.watch.trace_watches import read_watched, refusal_note

__all__ = ["SOURCES"]


class _Accesses:
    """Accesses, with the names of their accessors."""

    def __init__(self, trace: Opened) -> None:
        self._recording = trace.recording
        self._accessors = Accessors(trace)
        self._known: dict[tuple[int, Watch], Variable] = {}
        self._stacks = AccessStacks(trace)
        self._tell(watches_of(trace))

    @property
    def variables(self) -> list[Variable]:
        return [*self._known.values()]

    @property
    def stacks(self) -> Stacks:
        return self._stacks.known

    def __iter__(self) -> Iterator[Access]:
        for one in self._recorded():
            variable = self._known[one.process, one.watch]
            if variable.meant:
                yield self._shown(one, variable)

    def _recorded(self) -> Iterator[Recorded]:
        """The accesses by time."""
        raise NotImplementedError

    def _tell(self, told: Sequence[Sequence[Told | None]]) -> None:
        """Make the variables of all processes."""
        self._told = told
        self._known = {
            (header, one.watch): _variable(self._recording, header, one)
            for header, watches in enumerate(told)
            for one in watches
            if one is not None
        }

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
            stack=one.stack,
        )


class _ReadAccesses(_Accesses):
    """Those that have been recorded."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self._place, self._words = read_accesses(trace, self._told, self._stacks)

    def _recorded(self) -> Iterator[Recorded]:
        return recorded(self._place, self._words, self._told)


class _FollowedAccesses(_Accesses):
    """Those that are being recorded, as they come."""

    def __init__(self, trace: Followed) -> None:
        super().__init__(trace)
        self._trace = trace

    def _recorded(self) -> Iterator[Recorded]:
        trace, held = self._trace, HeldColumns(PLACE + WORDS, time=3)
        for part in trace.parts(self._behind):
            place, words, wrong = places_of(
                part.found,
                part.words,
                part.time,
                process=trace.processes[part.file],
                thread=part.thread,
                told=self._told,
                stacks=self._stacks,
                span=self._recording.window.span,
            )
            trace.torn += wrong
            held.add(np.concatenate([place.T, words.T.view(np.int64)]))
            ready = held.ready(part.until)
            yield from recorded(ready[:PLACE].T, ready[PLACE:].T.view(np.uint64), self._told)
        self._tell(watches_of(trace))

    def _behind(
        self, words: NDArray[np.uint64], file: NDArray[np.int32]
    ) -> NDArray[np.uint8] | NDArray[np.uint16]:
        if len(self._told) < len(self._trace.runs):
            self._tell(watches_of(self._trace))
        process = self._trace.processes[file]
        numbers = np.unique(process).tolist()
        parts = [words_behind(self._told[n], words[process == n]) for n in numbers]
        out = np.zeros(words.shape, np.result_type(np.uint8, *parts))
        for number, part in zip(numbers, parts, strict=True):
            out[process == number] = part
        return out


class _Watched(TraceEvents):
    """Accesses to variables."""

    has_returns = False

    @property
    @abstractmethod
    def _accesses(self) -> _Accesses: ...

    def accesses(self) -> _Accesses:
        return self._accesses

    @property
    def has_stacks(self) -> bool:
        sources = self.trace.sources
        return any(has_stacks(read_watched(one.fd, one.header)) for one in sources)

    def notes(self) -> list[str]:
        stacks = self._accesses.stacks.notes if self.has_stacks else []
        return [*super().notes(), *stacks]


class _Watches(_Watched):
    """Those that have been recorded."""

    trace: Trace

    @cached_property
    def _accesses(self) -> _ReadAccesses:
        return _ReadAccesses(self.trace)


class _FollowedWatches(_Watched):
    """Those that are being recorded."""

    trace: Followed

    @cached_property
    def _accesses(self) -> _FollowedAccesses:
        return _FollowedAccesses(self.trace)


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
        stack=watch.stack > 0,
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
    follow=lambda trace: _FollowedWatches(_WATCHES, trace),
    tracers=(Tracer.WATCH,),
    no_returns="no watch records stacks",
    hint="watch it with `stack`, as in stock:rw- stack",
)
SOURCES = (_WATCHES,)
