# SPDX-License-Identifier: MIT
"""Stacks as pprof reads them: how often each was called, and the time that its last function spent
itself. What a function took with all that it called, pprof adds up."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import islice

from ftpatch.trace.call_tree import Tree
from ftpatch.trace.render.pprof_schema import Message, new_message
from ftpatch.trace.render.style import Style
from ftpatch.trace.report import Report
from ftpatch.trace.source import Data, EventSource, Recording

__all__ = ["REPORT"]

STEP = 1 << 12
"""Samples that are packed at once."""
GZIP = zlib.MAX_WBITS | 16
"""A gzip header, whose time zlib leaves 0: equal traces make equal files."""


def _pprof(source: EventSource, style: Style) -> Iterator[bytes]:
    tree, recording = style.tree(source), source.recording
    strings = _Strings()
    packer = zlib.compressobj(wbits=GZIP)
    yield packer.compress(_types(recording, style, strings))
    samples = _samples(tree)
    while some := list(islice(samples, STEP)):
        part = new_message("Profile")
        part.sample.extend(some)
        yield packer.compress(part.SerializeToString())
    yield packer.compress(_functions(recording, style, strings))
    table = new_message("Profile")
    table.string_table.extend(strings.numbers)
    yield packer.compress(table.SerializeToString())
    yield packer.flush()


class _Strings:
    """The table of strings; an empty one is its first."""

    def __init__(self) -> None:
        self.numbers = {"": 0}

    def __getitem__(self, text: str) -> int:
        """The number of a string."""
        plain = text.encode("utf-8", "backslashreplace").decode()
        return self.numbers.setdefault(plain, len(self.numbers))


def _types(recording: Recording, style: Style, strings: _Strings) -> bytes:
    """The values that a sample has, and what is missing in the trace as comments."""
    profile = new_message("Profile")
    unit = "nanoseconds" if recording.has_clock else "ticks"
    profile.sample_type.add(type=strings["calls"], unit=strings["count"])
    profile.sample_type.add(type=strings["time"], unit=strings[unit])
    profile.default_sample_type = strings["time"]
    profile.comment.extend(strings[note] for note in style.notes)
    return bytes(profile.SerializeToString())


def _samples(tree: Tree) -> Iterator[Message]:
    hits, own = tree.hits.tolist(), tree.own.tolist()
    for node, stack in tree.stacks():
        if hits[node] or own[node]:
            sample = new_message("Sample")
            sample.location_id.extend(function + 1 for function in reversed(stack))
            sample.value.extend((hits[node], own[node]))
            yield sample


def _functions(recording: Recording, style: Style, strings: _Strings) -> bytes:
    """Functions with a location for each, and the files that they are in."""
    functions = recording.functions
    profile = new_message("Profile")
    first = recording.headers[0]
    files = {"": style.clean(first.image or first.comm)}
    for name in functions.library:
        files.setdefault(name, style.clean(name))
    for number, name in enumerate(files.values(), 1):
        # pprof need not look for names itself.
        known = {"has_functions": True, "has_filenames": True, "has_line_numbers": True}
        profile.mapping.add(id=number, filename=strings[name], **known)
    mappings = {name: number for number, name in enumerate(files, 1)}
    for index, name in enumerate(style.names(functions)):
        place, _, line = style.clean(functions.source[index]).rpartition(":")
        start = int(line) if line.isdecimal() else 0
        profile.function.add(
            id=index + 1,
            name=strings[name],
            system_name=strings[style.clean(functions.symbol[index])],
            filename=strings[place],
            start_line=start,
        )
        location = profile.location.add(id=index + 1, address=functions.address[index])
        location.mapping_id = mappings[functions.library[index]]
        location.line.add(function_id=index + 1, line=start)
    return bytes(profile.SerializeToString())


class Pprof(Report):
    """Stacks for pprof."""

    name = "pprof"
    shows = Data.CALLS | Data.HITS
    binary = True
    returns = True
    sums = True
    ends = (".pprof", ".pb", ".gz")

    def render(self, source: EventSource, style: Style) -> Iterator[bytes]:
        return _pprof(source, style)


REPORT: Report = Pprof()
