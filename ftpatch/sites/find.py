"""The table of an image that does not say where it is: found by what it is.

A table lists every instrumented function, so it is the longest run of words (or of relative
relocations) of which each is the address of a site. Pointers to functions stand elsewhere too, in
vtables and in .init_array, in shorter runs; a pointer at the edge of the run that is in the table
already belongs to such a neighbour.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import Abi, Arch, State
from ftpatch.errors import InputError
from ftpatch.image import Image
from ftpatch.image.relocations import Form
from ftpatch.image.skeleton import Segment
from ftpatch.sites.table import NAMES, Span

__all__ = ["find_table"]


def find_table(image: Image, arch: Arch) -> Span | None:
    """The span of the table; None where no word is the address of a site.

    Raises InputError where two runs are equally good.
    """
    slot, value = _candidates(image, arch)
    order = np.argsort(slot)
    slot, value = slot[order], value[order]
    for pad in (True, False):
        good = _sites(image, arch, value, pad)
        runs = _runs(slot[good], value[good], image.elf.word)
        if not runs:
            continue
        runs.sort(key=lambda run: run[2], reverse=True)
        if len(runs) > 1 and runs[0][2] == runs[1][2]:
            raise InputError(
                image.path,
                f"no section or symbol names the table, and two runs of {runs[0][2]} records "
                f"look like it: at {runs[0][0]:#x} and {runs[1][0]:#x}",
            )
        start, count, _ = runs[0]
        offset = int(image.elf.offset_of(np.array([start], np.uint64))[0])
        return Span(NAMES[1] if pad else NAMES[0], ((start, offset, count * image.elf.word),))
    return None


def _candidates(image: Image, arch: Arch) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Slots and values of all aligned words of the image that are addresses of code."""
    word, elf = image.elf.word, image.elf
    slots, values = [], []
    for segment in elf.skeleton.segments:
        if segment.type != Segment.PT_LOAD:
            continue
        address, size, offset = segment.address, segment.size, segment.offset
        skip = -address % word
        count = max(size - skip, 0) // word
        raw = elf.contents(offset + skip, count * word, "segment")
        slots.append(
            np.uint64(address + skip) + np.arange(count, dtype=np.uint64) * np.uint64(word)
        )
        values.append(np.frombuffer(raw.tobytes(), f"<u{word}").astype(np.uint64))
    relocations = image.relocations
    rela = (relocations.form == Form.RELA) & (relocations.type == arch.relative)
    slot = np.concatenate([relocations.place[rela], *slots])
    value = np.concatenate([relocations.addend[rela].view(np.uint64), *values])
    slot, first = np.unique(slot, return_index=True)  # a relocation comes before the word
    value = value[first]
    code = elf.offset_of(value, executable=True) >= 0
    return slot[code], value[code]


def _sites(image: Image, arch: Arch, value: NDArray[np.uint64], pad: bool) -> NDArray[np.bool_]:
    """Which values are addresses of NOP pads, or, without ``pad``, of calls to one callee."""
    abi = Abi(pad=pad)
    code, _ = image.elf.gather(image.elf.offset_of(value), arch.around)
    ip = arch.call_adjust(value, code, abi)
    offset = image.elf.offset_of(ip - np.uint64(arch.lead(abi)), executable=True)
    code, there = image.elf.gather(offset, arch.width)
    state, addr, _, _ = arch.decode(code, ip, abi)
    if pad:
        return np.asarray((state == State.NOP) & there)
    call: NDArray[np.bool_] = (state == State.CALL) & there
    if not call.any():
        return call
    callee, count = np.unique(addr[call], return_counts=True)
    return np.asarray(call & (addr == callee[count.argmax()]))


def _runs(
    slot: NDArray[np.uint64], value: NDArray[np.uint64], word: int
) -> list[tuple[int, int, int]]:
    """(address, records, distinct records) of each run of neighbouring slots."""
    if not len(slot):
        return []
    edges = np.flatnonzero(np.diff(slot) != word) + 1
    runs = []
    for part, values in zip(np.split(slot, edges), np.split(value, edges), strict=True):
        low, high = 0, len(part)
        while high - low > 1 and values[low] in values[low + 1 : high]:
            low += 1
        while high - low > 1 and values[high - 1] in values[low : high - 1]:
            high -= 1
        runs.append((int(part[low]), high - low, len(np.unique(values[low:high]))))
    return runs
