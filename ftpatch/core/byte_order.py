# SPDX-License-Identifier: MIT
"""Numbers in the byte order of a file (EI_DATA; System V ABI, chapter 4, "ELF Identification").

0x01020304   ELFDATA2LSB  04 03 02 01     ELFDATA2MSB  01 02 03 04
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["BIG", "LITTLE", "NATIVE", "ByteOrder"]


@dataclass(frozen=True, slots=True)
class ByteOrder:
    """One of the two; ``big``: the most significant byte comes first."""

    big: bool

    def record(self, kind: np.dtype[np.void]) -> np.dtype[np.void]:
        """The record of little-endian numbers as this order has it."""
        return _swapped(kind) if self.big else kind

    def kind(self, code: str) -> np.dtype[np.generic]:
        """The dtype of a number: ``u`` or ``i``, and its size in bytes."""
        import numpy as np  # not where files are just unpacked

        return np.dtype((">" if self.big else "<") + code)

    def integer(self, raw: bytes | NDArray[np.uint8]) -> int:
        """Read one unsigned number, of as many bytes as there are."""
        return int.from_bytes(bytes(raw), "big" if self.big else "little")

    def packed(self, value: int, size: int) -> bytes:
        """The ``size`` bytes of one unsigned number. Raises OverflowError."""
        return value.to_bytes(size, "big" if self.big else "little")

    def unsigned(self, raw: bytes | NDArray[np.uint8], size: int) -> NDArray[np.uint64]:
        """Read numbers of ``size`` bytes, which stand one after the other: uint64[n]."""
        import numpy as np  # not where files are just unpacked

        return np.frombuffer(bytes(raw), self.kind(f"u{size}")).astype(np.uint64)

    def signed(self, raw: bytes | NDArray[np.uint8], size: int) -> NDArray[np.int64]:
        """Read signed numbers of ``size`` bytes: int64[n]."""
        import numpy as np  # not where files are just unpacked

        return np.frombuffer(bytes(raw), self.kind(f"i{size}")).astype(np.int64)

    def rows(self, value: NDArray[np.integer], size: int) -> NDArray[np.uint8]:
        """The bytes of numbers, uint8[n, size]: of each its lower ``size`` bytes."""
        import numpy as np  # not where files are just unpacked

        return value.astype(self.kind(f"u{size}")).view(np.uint8).reshape(-1, size)


LITTLE = ByteOrder(big=False)
BIG = ByteOrder(big=True)
NATIVE = BIG if sys.byteorder == "big" else LITTLE
"""That of this machine, and of its processes."""


@cache
def _swapped(kind: np.dtype[np.void]) -> np.dtype[np.void]:
    return kind.newbyteorder(">")
