# SPDX-License-Identifier: MIT
"""The probes of several processes as one list, in which those that are the same are one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ftpatch.errors import InputError
from ftpatch.probe.trace_probes import Probe, read_probes
from ftpatch.trace.address_names import Places
from ftpatch.trace.hits import Point
from ftpatch.trace.reader import OpenFile
from ftpatch.trace.source import Recording

__all__ = ["SharedPoints", "probes_of"]


class SharedPoints:
    """The probes that a recording's window selects, process by process. ``header``, ``told`` and
    ``numbers`` are those of Hits; ``all_told``: all probes of each process."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._known: dict[tuple[object, ...], int] = {}
        self.probes: list[Probe] = []
        self.all_told: list[list[Probe]] = []
        self.header: list[int] = []
        self.numbers: list[NDArray[np.int32]] = []

    @property
    def told(self) -> list[list[Point]]:
        """The probes of each process, as points."""
        return [[*probes] for probes in self.all_told]

    def add(self, probes: list[Probe]) -> None:
        """Add the probes of the next process."""
        recording, process = self._recording, len(self.all_told)
        window, places = recording.window, Places(recording, str)
        numbers = np.full(len(probes), -1, np.int32)
        program = recording.program[process]
        for number, probe in enumerate(probes):
            function = places.function(process, probe)[0]
            symbol = recording.program_of(process).symbols.get(function, function)
            names = dict.fromkeys([probe.name, probe.definition.name, function, symbol])
            if window.globs and not window.names_match(*names):
                continue
            key = program, replace(probe, missed=0)
            same = self._known.setdefault(key, len(self.probes))
            numbers[number] = same
            if same < len(self.probes):
                missed = self.probes[same].missed + probe.missed
                self.probes[same] = replace(probe, missed=missed)
            else:
                self.probes.append(probe)
                self.header.append(process)
        self.all_told.append(probes)
        self.numbers.append(numbers)


def probes_of(sources: Sequence[OpenFile]) -> list[Probe]:
    """Read the probes of one process from all its files: each begins with the counts of the one
    before. Raises InputError for corrupt data."""
    first, *others = (read_probes(one.fd, one.header) for one in sources)
    for source, other in zip(sources[1:], others, strict=True):
        if [replace(one, missed=0) for one in other] != [replace(one, missed=0) for one in first]:
            reason = f"it has other probes than {sources[0].header.path}"
            raise InputError(source.header.path, reason)
    same = zip(first, *others, strict=True)
    return [replace(one[0], missed=max(each.missed for each in one)) for one in same]
