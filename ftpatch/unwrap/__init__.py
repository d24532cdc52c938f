"""What stands around an image: compression, and the containers that kernels are booted from.

Bytes in, bytes out, and nothing but the standard library before there is something to unpack: so
this can go on while everything else is imported (see ahead.py).
"""

from __future__ import annotations

from ftpatch.unwrap.payload import Layer, Payload, begins_as_image, read_payload

__all__ = ["Layer", "Payload", "begins_as_image", "read_payload"]
