# SPDX-License-Identifier: MIT
"""Images: the files that ftpatch understands. Only this package opens them.

Unpacking begins while the libraries load (prefetch.py), so this package imports none of them
itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ftpatch.image.image import Image, open_image

__all__ = ["Image", "open_image"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever it is
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ftpatch.image import image

    return getattr(image, name)
