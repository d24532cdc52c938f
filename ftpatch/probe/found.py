# SPDX-License-Identifier: MIT
"""Locations of one image, with what their probes fetch, before they are placed anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ftpatch.arch.registers import Registers
from ftpatch.errors import Refused
from ftpatch.image import Image
from ftpatch.inject.probe_methods import ProbeMethod
from ftpatch.names.named_symbols import DATA, Named
from ftpatch.names.suggest import meant
from ftpatch.probe import Definition, definition_text
from ftpatch.probe.fetching import Fetching, fetching
from ftpatch.probe.locations import Location
from ftpatch.probe.steps import Own
from ftpatch.probe.tables import Probe
from ftpatch.probe.wildcards import skipping

__all__ = ["Found", "Placed", "fetchings", "placed_of"]


@dataclass(frozen=True, kw_only=True)
class Found:
    """A location, and what each of its probes fetches."""

    location: Location
    fetchings: Sequence[Fetching]

    def probes(self, *, handler: int = 0, above: int = 0) -> Iterator[Probe]:
        """Its probes for the runtime's tables. ``handler``: a user's, by link address; ``above``:
        what is added to the link addresses, modulo 2**64."""
        location = self.location
        for definition, fetched in zip(location.definitions, self.fetchings, strict=True):
            yield Probe(
                ip=(location.ip + above) % (1 << 64),
                returns=definition.kind == "r",
                maxactive=definition.maxactive,
                fetching=fetched.above(above),
                text=definition_text(definition),
                handler=handler,
                way=location.chosen.method.number,
            )


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A placed probe: ``address`` where the file is changed, ``why`` the preceding method was not
    usable."""

    definition: Definition
    address: int
    method: ProbeMethod
    why: str


def placed_of(found: Sequence[Found], definitions: Sequence[Definition]) -> list[Placed]:
    """The placed probes, in the order of their definitions."""
    placed = {
        definition: Placed(
            definition=definition, address=chosen.address, method=chosen.method, why=chosen.why
        )
        for location, chosen in ((one.location, one.location.chosen) for one in found)
        for definition in location.definitions
    }
    return [placed[one] for one in definitions if one in placed]


def fetchings(
    image: Image, locations: Sequence[Location], registers: Registers, refused: Refused
) -> list[Found]:
    """Keep the locations whose probes can fetch what they ask for, with the steps of each."""
    own = Own(
        image.symbols.find, lambda at, size: _has(image, at, size), lambda name: _like(image, name)
    )
    found = []
    for location in locations:
        definitions, fetchings = [], []
        for one in location.definitions:
            with refused.told(image.path, skips=skipping([one])):
                fetchings.append(fetching(one, location.ip, registers, own))
                definitions.append(one)
        if definitions:
            left = replace(location, definitions=tuple(definitions))
            found.append(Found(location=left, fetchings=tuple(fetchings)))
    return found


def _like(image: Image, name: str) -> str:
    """Hint at similar names."""
    found = Named(image.symbols, DATA)
    return meant(found.find(name) or found.like(name), "see `nm`")


def _has(image: Image, address: int, size: int) -> bool:
    """Return whether these bytes are within a segment."""
    ends = np.array([at % (1 << 64) for at in (address, address + size - 1)], np.uint64)
    return bool(image.elf.in_memory(ends).all())
