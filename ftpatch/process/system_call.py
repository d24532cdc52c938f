# SPDX-License-Identifier: MIT
"""System calls that libc has no function for."""

from __future__ import annotations

import ctypes
import os
from typing import Final

__all__ = ["system_call"]

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_CALL: Final = _LIBC.syscall
_CALL.restype = ctypes.c_long


def system_call(number: int, *arguments: int | ctypes.Array[ctypes.c_char]) -> int:
    """Make a system call. Raises OSError."""
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    done = _CALL(ctypes.c_long(number), *words)
    if done < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(done)
