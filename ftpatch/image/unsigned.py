# SPDX-License-Identifier: MIT
"""The header of an Image without its signature, as Changes: it is changed where it stands."""

from __future__ import annotations

import numpy as np

from ftpatch.core.changes import NO_OWNER, Changes, Kind
from ftpatch.image.image import Image
from ftpatch.image.pe import read_pe

__all__ = ["unsigned_header"]


def unsigned_header(image: Image) -> Changes:
    """Changes that leave the checksum and the place of the certificates as the build does; none for
    an image that is wrapped or not signed for UEFI."""
    pe = read_pe(image.data.data) if not image.layers else None
    if pe is None or not pe.size:
        return Changes.concat([])
    parts = [
        Changes.of(
            Kind.HEADER,
            np.array([at], np.int64),
            image.data[at : at + size].reshape(1, size),
            np.zeros((1, size), np.uint8),
            NO_OWNER,
        )
        for at, size in pe.filled
    ]
    return Changes.concat(parts)
