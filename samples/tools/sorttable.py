# SPDX-License-Identifier: MIT
"""What Linux's scripts/sorttable does to a linked kernel's table of ftrace sites.

    sorttable.py [--before BYTES] VMLINUX

Records that no function symbol covers become null (overridden weak functions leave such
records), then the table is sorted in place. --before: a record may lie that far before its
function. Relocations stay, as they do in Linux: a null slot's RELR bit remains set.
"""

from __future__ import annotations

import argparse
import struct
from pathlib import Path

from elftools.elf.elffile import ELFFile


def main() -> None:
    """Rewrite one kernel's table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", type=int, default=0)
    parser.add_argument("vmlinux", type=Path)
    args = parser.parse_args()
    with args.vmlinux.open("rb") as stream:
        elf = ELFFile(stream)
        symbols = list(elf.get_section_by_name(".symtab").iter_symbols())
        bounds = {s.name: s["st_value"] for s in symbols if s.name.endswith("_mcount_loc")}
        start, stop = bounds["__start_mcount_loc"], bounds["__stop_mcount_loc"]
        init = elf.get_section_by_name(".init.data")
        offset = init["sh_offset"] + start - init["sh_addr"]
        code = "Q" if elf.elfclass == 64 else "I"
    functions = [
        (s["st_value"] - args.before, s["st_value"] + s["st_size"])
        for s in symbols
        if s["st_info"]["type"] == "STT_FUNC"
    ]
    image = bytearray(args.vmlinux.read_bytes())
    form = f"<{(stop - start) // struct.calcsize(code)}{code}"
    table = struct.unpack_from(form, image, offset)
    kept = [v if any(low <= v < high for low, high in functions) else 0 for v in table]
    struct.pack_into(form, image, offset, *sorted(kept))
    args.vmlinux.write_bytes(image)


if __name__ == "__main__":
    main()
