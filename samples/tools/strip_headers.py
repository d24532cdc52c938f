# SPDX-License-Identifier: MIT
"""Takes the section headers off an ELF file: e_shoff, e_shnum, e_shstrndx = 0, and the table cut.

    strip_headers.py FILE

Such a file runs as before; only its segments say what it holds.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

# Offsets in the ELF64 header (ELF specification, figure 4-3): e_shoff, e_shentsize.
E_SHOFF, E_SHENTSIZE = 0x28, 0x3A


def main() -> None:
    """Rewrite one file in place."""
    path = Path(sys.argv[1])
    image = bytearray(path.read_bytes())
    (table,) = struct.unpack_from("<Q", image, E_SHOFF)
    struct.pack_into("<Q", image, E_SHOFF, 0)
    struct.pack_into("<HHH", image, E_SHENTSIZE, 0, 0, 0)
    # The linker puts the headers last, so nothing else is cut.
    path.write_bytes(image[:table])


if __name__ == "__main__":
    main()
