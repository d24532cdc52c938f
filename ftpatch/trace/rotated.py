# SPDX-License-Identifier: MIT
"""Trace files of one process, one after another: where a file was full, it went on in the next.

    NAME      | thread 1: chunk 0, 1, 2 | thread 2: chunk 0 |
    NAME.r1   | thread 1: chunk 3, 4    | thread 2: chunk 1 |

They have the origin of their times in common, and threads' chunks are numbered on.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_

from ftpatch.trace.header import Flag, Header
from ftpatch.trace.losses import by_thread

__all__ = ["is_rotated", "merged", "run_of", "runs_of"]


def is_rotated(header: Header) -> bool:
    """Test whether a process may have other files besides."""
    return bool(header.flags & Flag.ROTATES)


def run_of(header: Header) -> Hashable:
    """The key that the files of one process have in common, and no others."""
    own = (header.pid, header.ticks, header.realtime, header.image_id)
    return own if is_rotated(header) else (*own, header.path)


def runs_of(headers: Sequence[Header]) -> list[list[int]]:
    """Group headers, by their numbers, that are of one process, in the order of the first ones."""
    runs: dict[Hashable, list[int]] = {}
    for number, header in enumerate(headers):
        key: Hashable = run_of(header) if is_rotated(header) else number
        runs.setdefault(key, []).append(number)
    return list(runs.values())


def merged(headers: Sequence[Header]) -> Header:
    """The header of all files of one process, with what is missing of any of them."""
    if len(headers) == 1:
        return headers[0]
    flags = reduce(or_, (header.flags for header in headers))
    last = next((one for one in headers if not one.flags & Flag.NEXT), None)
    if last is None:  # the one that is written is not among them
        last = headers[-1]
    else:
        flags &= ~Flag.NEXT
    cut_off = next((one for one in headers if one.length < one.used), last)
    return replace(
        cut_off,
        path=headers[0].path,
        flags=flags,
        off=last.off,
        libraries=last.libraries,
        objects=last.objects,
        ended_ticks=last.ended_ticks,
        lost=tuple(map(sum, zip(*(header.lost for header in headers), strict=True))),
        overwritten=sum(header.overwritten for header in headers),
        children=sum(header.children for header in headers),
        cut=sum(header.cut for header in headers),
        known_losses=by_thread(loss for header in headers for loss in header.known_losses),
    )
