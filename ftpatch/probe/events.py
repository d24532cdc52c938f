# SPDX-License-Identifier: MIT
"""Events of probes, for reports."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from ftpatch.probe.read_hits import Hits, read_hits
from ftpatch.probe.trace_probes import read_probes
from ftpatch.trace.events import TraceEvents
from ftpatch.trace.header import Tracer
from ftpatch.trace.hit_calls import calls, limit_depth, name_functions
from ftpatch.trace.rows import Rows
from ftpatch.trace.source import Data, SourceKind

__all__ = ["SOURCES"]


class _Probes(TraceEvents):
    """Hits, and the calls that r probes recorded."""

    @property
    def has_returns(self) -> bool:
        probes = (read_probes(file.fd, file.header) for file in self.trace.sources)
        return any(probe.returns for those in probes for probe in those)

    @cached_property
    def _hits(self) -> Hits:
        hits = read_hits(self.trace)
        limit_depth(hits, self.recording)
        return hits

    def hits(self) -> Hits:
        return self._hits

    def rows(self) -> Iterator[Rows]:
        functions = name_functions(self._hits, self.recording)
        return calls(self._hits, len(self.recording.tids), functions)


_PROBES: SourceKind = SourceKind(
    what="probe events",
    data=Data.HITS,
    default="probes",
    open=lambda trace: _Probes(_PROBES, trace),
    tracers=(Tracer.PROBES,),
    no_returns="there is no r probe",
)
SOURCES = (_PROBES,)
