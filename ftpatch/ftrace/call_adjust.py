# SPDX-License-Identifier: MIT
"""ftrace_call_adjust as this kernel makes it: one prefix for all records."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import Abi, Arch
from ftpatch.arch.instruction_set import instruction_set
from ftpatch.image import Image

__all__ = ["adjust"]


def adjust(
    image: Image,
    arch: Arch,
    abi: Abi,
    record: NDArray[np.uint64],
    prefix: NDArray[np.int64] | None = None,
) -> NDArray[np.uint64]:
    """ip of each record, uint64[n]; ``prefix`` (bytes before the function) is the abi's for all
    where it is not given."""
    skip = np.full(len(record), abi.prefix, np.int64) if prefix is None else prefix
    entry = record + skip.view(np.uint64)
    second = instruction_set(arch.name)
    if abi.kernel and not abi.pad and second is None:
        return entry  # every kernel takes the record of a call as it is, but for that bit
    code, _ = image.elf.gather(image.elf.offset_of(entry), arch.around)
    return arch.call_adjust(entry, code, abi)
