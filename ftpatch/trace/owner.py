# SPDX-License-Identifier: MIT
"""The image a trace belongs to."""

from __future__ import annotations

from ftpatch.errors import InputError
from ftpatch.image import Image
from ftpatch.image.injected import image_id, laid_in_id
from ftpatch.trace.mapped import Mapped
from ftpatch.trace.source import Origin

__all__ = ["is_library", "require_owner"]


def require_owner(header: Origin, image: Image, option: str = "--image") -> bool:
    """Return whether the trace is of the image, or of a traced copy of it; false if the trace does
    not say. ``option`` can name another. Raises InputError for a trace of another image."""
    if not any(header.image_id):
        return False
    if (laid_in_id(image) or image_id(image)) != header.image_id:
        raise InputError(
            header.path,
            f"not a trace of {image.path}, or the image was changed since",
            f"use {option} with the right one, or --force",
        )
    return True


def is_library(mapped: Mapped, image: Image) -> bool:
    """Return whether a library is the one traced; true if the trace does not say."""
    return not any(mapped.image_id) or image_id(image) == mapped.image_id
