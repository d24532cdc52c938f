# SPDX-License-Identifier: MIT
"""Errors from the limits of the process (getrlimit(2)), and which of them to raise.

A library that cannot be mapped is an ImportError, and some of CPython's and NumPy's C code forgets
to say what was wrong (SystemError): they are told as what they are only where memory is limited.
"""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from typing import Final

__all__ = ["is_out_of_memory", "limit_hint"]

MEMORY: Final = "raise the limit of memory (`ulimit -v`)"
HINTS: Final = {
    errno.EMFILE: "raise the limit of open files (`ulimit -n`)",
    errno.EFBIG: "raise the limit of file sizes (`ulimit -f`)",
}
UNMAPPED: Final = ("failed to map segment", "annot allocate memory")
"""Of the dynamic linker's messages."""


def limit_hint(error: BaseException) -> str:
    """Say which limit of this process to raise if one led to an error; empty if none did."""
    if is_out_of_memory(error):
        return MEMORY if _is_limited() else ""
    for one in _chain(error):
        if isinstance(one, OSError) and one.errno in HINTS:
            return HINTS[one.errno]
    return ""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error is from a lack of memory."""
    return any(_lacks_memory(one) for one in _chain(error))


def _lacks_memory(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, ImportError):
        return any(words in str(error) for words in UNMAPPED)
    return isinstance(error, MemoryError) or (isinstance(error, SystemError) and _is_limited())


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that it was raised from or while handling, also those that are not
    shown."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _is_limited() -> bool:
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
