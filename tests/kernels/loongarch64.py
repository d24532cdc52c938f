# SPDX-License-Identifier: MIT
"""Code of LoongArch read by GNU objdump: Capstone does not have it."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tests.support.cross_root import use_cross_root

__all__ = ["instructions", "made_addresses", "read_sites"]

LINE = re.compile(r"^ *[0-9a-f]+:\t[0-9a-f]{8} \t(\S+)[ \t]*([^#\n]*)", re.MULTILINE)


def read_sites(
    code: NDArray[np.uint8], ip: NDArray[np.uint64]
) -> tuple[NDArray[np.str_], NDArray[np.uint64]]:
    """(state, target) of each site, whose two instructions are a row of ``code``."""
    text = list(instructions(code.tobytes()))
    states, targets = [], []
    for at, first, second in zip(ip.tolist(), text[::2], text[1::2], strict=True):
        target = 0
        match first, second:
            case ((("nop", "") | ("move", "$t0, $ra")), ("nop", "")):
                state = "nop"
            case ("move", "$t0, $ra"), ("bl", distance):
                state, target = "call", at + 4 + int(distance)
            case _:
                state = "unexpected"
        states.append(state)
        targets.append(target)
    return np.array(states, dtype="U10"), np.array(targets, dtype=np.uint64)


def made_addresses(code: bytes, start: int) -> set[int]:
    """Addresses that the code at ``start`` makes by pcalau12i and addi.d."""
    pages: dict[str, int] = {}
    made = set()
    for number, (mnemonic, operands) in enumerate(instructions(code)):
        words = operands.split(", ")
        if mnemonic == "pcalau12i":
            page = (start + 4 * number) >> 12
            pages[words[0]] = page + int(words[1], 0) << 12
        elif mnemonic == "addi.d" and words[1] in pages:
            made.add(pages[words[1]] + int(words[2], 0))
    return made


def instructions(code: bytes) -> Iterator[tuple[str, str]]:
    """Mnemonic and operands of each word."""
    use_cross_root("loongarch64")
    with tempfile.NamedTemporaryFile() as file:
        file.write(code)
        file.flush()
        # -z: a run of zeros would be left out.
        command = ["loongarch64-linux-gnu-objdump", "-Dz", "-b", "binary", "-m", "loongarch64"]
        done = subprocess.run([*command, file.name], check=True, capture_output=True, text=True)
    for found in LINE.finditer(done.stdout):
        yield found[1], found[2].strip()
