# SPDX-License-Identifier: MIT
"""The probes of several traces as one list, in which those that are the same are one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ftpatch.probe.trace_probes import Probe
from ftpatch.trace.address_names import Places
from ftpatch.trace.hits import Point
from ftpatch.trace.source import Recording

__all__ = ["SharedPoints"]


class SharedPoints:
    """The probes that a recording's window selects, trace by trace. ``header``, ``told`` and
    ``numbers`` are those of Hits; ``all_told``: all probes of each trace."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._known: dict[tuple[object, ...], int] = {}
        self.probes: list[Probe] = []
        self.all_told: list[list[Probe]] = []
        self.header: list[int] = []
        self.numbers: list[NDArray[np.int32]] = []

    @property
    def told(self) -> list[list[Point]]:
        """The probes of each trace, as points."""
        return [[*probes] for probes in self.all_told]

    def add(self, probes: list[Probe]) -> None:
        """Add the probes of the next trace."""
        recording, file = self._recording, len(self.all_told)
        window, places = recording.window, Places(recording, str)
        numbers = np.full(len(probes), -1, np.int32)
        program = recording.program[file]
        for number, probe in enumerate(probes):
            function = places.function(file, probe)[0]
            symbol = recording.program_of(file).symbols.get(function, function)
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
                self.header.append(file)
        self.all_told.append(probes)
        self.numbers.append(numbers)
