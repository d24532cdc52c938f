# SPDX-License-Identifier: MIT
"""The signature at the end of a kernel module (include/linux/module_signature.h).

| module | signer, key id, signature | struct module_signature (12) | marker (28) |

struct module_signature: algo, hash, id_type, signer_len, key_id_len, pad[3]: one byte each;
sig_len: four bytes, big-endian
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.errors import InputError

__all__ = ["MARKER", "signature_size"]

MARKER = b"~Module signature appended~\n"
HEADER = 12
"""Bytes of struct module_signature."""


def signature_size(path: Path, data: NDArray[np.uint8]) -> int:
    """Size of a module's signature, or several in a row, at the end of a file, uint8[size]; 0
    without one.

    Raises InputError for one that claims to be longer than the file.
    """
    left = len(data)
    while data[max(left - len(MARKER), 0) : left].tobytes() == MARKER:
        end = left - len(MARKER)
        head = data[max(end - HEADER, 0) : end].tobytes()
        size = head[3] + head[4] + int.from_bytes(head[8:], "big") if len(head) == HEADER else end
        if size > end - HEADER:
            raise InputError(path, "its module signature is longer than the file")
        left = end - HEADER - size
    return len(data) - left
