# SPDX-License-Identifier: MIT
"""The code of sites, as the loader will leave it.

In a relocatable file a call has no distance yet; a relocation will fill it in:

    e8 00 00 00 00      R_X86_64_PLT32 __fentry__ - 4   at ip + 1
    94 00 00 00 (bl)    R_AARCH64_CALL26 __fentry__     at ip
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import Abi, Arch, State
from ftpatch.arch.contract import U8
from ftpatch.core.columns import among
from ftpatch.elf.relocations import Form
from ftpatch.image import Image

__all__ = ["call_rows", "read_code", "written"]


def read_code(
    image: Image, arch: Arch, abi: Abi, ip: NDArray[np.uint64], offset: NDArray[np.int64]
) -> tuple[U8, NDArray[np.bool_]]:
    """Read sites whose code begins at file offsets ``offset``: uint8[n, arch.width], with
    the calls of a relocatable file linked; and which are in the file and touched by no relocation
    but that of their call, bool[n]."""
    code, there = image.elf.gather(offset, arch.width)
    if not image.is_relocatable or not len(ip):
        return code, there
    state, held, width, _ = arch.decode(code, ip, abi)
    relocations = image.relocations
    row = call_rows(image, arch, ip)
    call = (state == State.CALL) & (row >= 0) & there
    call[call] = relocations.symbol[row[call]] < len(image.symbols)
    lead = np.uint64(arch.lead(abi))
    touched = relocations.touch(ip - lead, width.astype(np.int64), written(image, arch))
    there &= touched == call
    at = row[call]
    if len(at):
        symbol = relocations.symbol[at]
        distance = relocations.addend[at] - arch.call_addend
        if (relocations.form[at] == Form.REL).any():
            # The addend is in the code, which reads as if S were the place of the relocation.
            away = held[call] - ip[call] - np.uint64(arch.call_field)
            distance = away.astype(np.uint32).view(np.int32).astype(np.int64)
        addr = image.symbols.value[symbol] + distance.view(np.uint64)
        code[call] = arch.make_call(ip[call], addr, width[call], abi)[:, : code.shape[1]]
    return code, there


def call_rows(image: Image, arch: Arch, ip: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Row of the relocation of each site's call, int64[n]; -1 if there is none."""
    return image.relocations.at(ip + np.uint64(arch.call_field), arch.calls)


def written(image: Image, arch: Arch) -> NDArray[np.int64]:
    """Maximum number of bytes that each of the image's relocations writes, int64[n]; 0 for those
    that write nothing. In a linked file all write words."""
    relocations, word = image.relocations, image.elf.word
    idle = (relocations.type == arch.neutral) & (relocations.symbol == 0)
    idle = (relocations.type == 0) | (idle & image.is_relocatable)
    idle &= relocations.form != Form.RELR
    whole = among(relocations.type, (arch.absolute, *arch.wide))
    whole |= not image.is_relocatable
    return np.where(idle, 0, np.where(whole, word, 4))
