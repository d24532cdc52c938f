# SPDX-License-Identifier: MIT
"""The ways that probes of a program would get, without any being inserted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ftpatch.api.recording_limits import MAX_STACK, TRACE_SIZE, WILDCARD_LIMIT, require_limits
from ftpatch.errors import Refused

if TYPE_CHECKING:
    from ftpatch.image import Image

__all__ = ["ProbeWay", "probe_ways"]


class ProbeWay(NamedTuple):
    """A place, and how a probe would get there; the fields are those of ``ftpatch probe --plan
    --json``: ``name`` of the probe or else of the function, ``address`` where the file would be
    changed, or the copy of its ``library``, if it has one; ``reason`` why the preceding way is not
    usable."""

    name: str
    address: int
    way: str
    reason: str
    library: str = ""


def probe_ways(
    path: Path,
    probes: Sequence[str],
    refused: Refused,
    *,
    optimize: bool = True,
    regex: bool = False,
    limit: int = WILDCARD_LIMIT,
) -> list[ProbeWay]:
    """Find the ways of ``probes``, if all of them were inserted together; without any, of a ``p``
    probe on each function that has a symbol or unwind information. ``refused`` collects the errors
    of those that cannot be; ``regex`` and ``limit`` are those of ProbeWords. Raises UsageError and
    InputError for a program that cannot be probed."""
    from ftpatch.api.probing import parsed_probes, pattern_of
    from ftpatch.image import open_image
    from ftpatch.probe.plan import Probing, placed_probes
    from ftpatch.probe.wildcards import Wildcards

    require_limits(limit=limit)
    image = open_image(path)
    words = list(probes) or _everywhere(image)
    definitions = parsed_probes(image, words, refused, pattern=pattern_of(regex))
    probing = Probing(
        definitions=definitions,
        optimize=optimize,
        handler=None,
        depth=MAX_STACK,
        size=TRACE_SIZE,
        wildcards=Wildcards(regex=regex, limit=limit),
    )
    placed = placed_probes(image, probing, refused)
    names = [one.definition.event for one in placed]
    if not probes:
        names = _functions(image, [one.definition.address or 0 for one in placed])
    return [
        ProbeWay(name, one.address, one.method.name, one.why, one.definition.library)
        for name, one in zip(names, placed, strict=True)
    ]


def _everywhere(image: Image) -> list[str]:
    """A probe on each function."""
    from ftpatch.names.functions import read_functions

    return [f"p:f{at:x} {at:#x}" for at in read_functions(image).start.tolist()]


def _functions(image: Image, addresses: Sequence[int]) -> list[str]:
    """The functions' names, or their addresses."""
    import numpy as np

    known = image.kallsyms.places(np.array(addresses, np.uint64))
    exact = (name.removesuffix("+0x0") if name.endswith("+0x0") else "" for name in known)
    return [name or f"{at:#x}" for name, at in zip(exact, addresses, strict=True)]
