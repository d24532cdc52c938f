# SPDX-License-Identifier: MIT
"""Events of probes, for reports."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ftpatch.probe.follow_hits import FollowedHits
from ftpatch.probe.read_hits import Hits, read_hits
from ftpatch.probe.trace_probes import Probe, read_probes
from ftpatch.trace.events import TraceEvents
from ftpatch.trace.followed import Followed
from ftpatch.trace.header import Tracer
from ftpatch.trace.hit_calls import calls, name_functions, narrow_hits
from ftpatch.trace.reader import Trace
from ftpatch.trace.rows import Rows
from ftpatch.trace.source import Data, SourceKind

__all__ = ["SOURCES"]


class _Probed(TraceEvents):
    """Hits of probes."""

    @property
    @abstractmethod
    def _hits(self) -> Hits: ...

    def hits(self) -> Hits:
        return self._hits

    def notes(self) -> list[str]:
        stacks = self._hits.stacks.known.notes if self.has_stacks else []
        return [*super().notes(), *stacks]

    @property
    def has_returns(self) -> bool:
        return any(probe.returns for probe in self._told)

    @property
    def has_stacks(self) -> bool:
        return any(probe.definition.stack for probe in self._told)

    @property
    def _told(self) -> Iterator[Probe]:
        for file in self.trace.sources:
            yield from read_probes(file.fd, file.header)


class _Probes(_Probed):
    """Hits, and the calls that r probes recorded."""

    trace: Trace
    _functions: NDArray[np.int32] | None = None

    @cached_property
    def _hits(self) -> Hits:
        hits = read_hits(self.trace)
        if self.recording.window.filters:
            narrow_hits(hits, self.recording, self._functions_of(hits))
        return hits

    def _functions_of(self, hits: Hits) -> NDArray[np.int32]:
        """The function of each point: numbered once."""
        if self._functions is None:
            self._functions = name_functions(hits, self.recording)
        return self._functions

    def rows(self) -> Iterator[Rows]:
        threads = len(self.recording.tids)
        return calls(self._hits, threads, self._functions_of(self._hits))


class _FollowedProbes(_Probed):
    """Hits that are being recorded."""

    trace: Followed

    @cached_property
    def _hits(self) -> FollowedHits:
        return FollowedHits(self.trace)


_PROBES: SourceKind = SourceKind(
    what="probe events",
    data=Data.HITS,
    default="probes",
    open=lambda trace: _Probes(_PROBES, trace),
    follow=lambda trace: _FollowedProbes(_PROBES, trace),
    tracers=(Tracer.PROBES,),
    no_returns="there are no r probes",
)
SOURCES = (_PROBES,)
