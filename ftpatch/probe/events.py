# SPDX-License-Identifier: MIT
"""Events of probes, for reports."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ftpatch.probe.read_hits import Hits, read_hits
from ftpatch.probe.trace_probes import read_probes
from ftpatch.trace.events import TraceEvents
from ftpatch.trace.header import Tracer
from ftpatch.trace.hit_calls import calls, name_functions, narrow_hits
from ftpatch.trace.rows import Rows
from ftpatch.trace.source import Data, SourceKind

__all__ = ["SOURCES"]


class _Probes(TraceEvents):
    """Hits, and the calls that r probes recorded."""

    _functions: NDArray[np.int32] | None = None

    @property
    def has_returns(self) -> bool:
        probes = (read_probes(file.fd, file.header) for file in self.trace.sources)
        return any(probe.returns for those in probes for probe in those)

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

    def hits(self) -> Hits:
        return self._hits

    def rows(self) -> Iterator[Rows]:
        threads = len(self.recording.tids)
        return calls(self._hits, threads, self._functions_of(self._hits))


_PROBES: SourceKind = SourceKind(
    what="probe events",
    data=Data.HITS,
    default="probes",
    open=lambda trace: _Probes(_PROBES, trace),
    tracers=(Tracer.PROBES,),
    no_returns="there is no r probe",
)
SOURCES = (_PROBES,)
