# SPDX-License-Identifier: MIT
"""Runs the programs, as they are and with every site calling ftrace_caller.

This is a patcher of its own, a few lines for the forms that the samples have. What a program
prints after it ("calls: N") is the number that ftpatch must reach, too.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from arches import runner
from reader import Image, Pad, Site

__all__ = ["run"]

MOV_X9_LR = 0xAA1E03E9  # mov x9, x30
BL = 0x94000000
AUIPC_RA, JALR_RA = 0x97, 0x80E7  # auipc ra, 0; jalr ra, 0(ra)
AUIPC_T0, JALR_T0 = 0x297, 0x282E7  # auipc t0, 0; jalr t0, 0(t0)


def _call(image: Image, site: Site, target: int) -> tuple[int, bytes]:
    """(address, bytes) that make a site call the target."""
    if image.arch == "arm64":
        distance = (target - site.ip) // 4 & 0x3FFFFFF
        words = (MOV_X9_LR, BL | distance)
        return site.ip - 4, b"".join(word.to_bytes(4, "little") for word in words)
    if image.arch == "riscv64":
        auipc, jalr = (AUIPC_T0, JALR_T0) if image.pad.total else (AUIPC_RA, JALR_RA)
        low = (target - site.ip + 0x800) % 0x1000 - 0x800
        words = (auipc | (target - site.ip - low), jalr | (low & 0xFFF) << 20)
        return site.ip, b"".join((word % 2**32).to_bytes(4, "little") for word in words)
    # A six-byte call (ff 15 disp32, 67 e8 rel32) becomes an addr32 call.
    prefix = b"\x67" if site.width == 6 else b""
    distance = target - (site.ip + len(prefix) + 5)
    return site.ip, prefix + b"\xe8" + distance.to_bytes(4, "little", signed=True)


def _enable(image: Image, target: int, path: Path) -> None:
    """Make every site of one file call the target."""
    patched = bytearray(path.read_bytes())
    for site in image.sites:
        address, code = _call(image, site, target)
        at = image.offset(address)
        patched[at : at + len(code)] = code
    path.write_bytes(patched)


def _start(program: Path, arch: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SHOW_CALLS": "1"}
    return subprocess.run(
        [*runner(arch), str(program)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def run(path: Path, pad: Pad, twin: Path, library: tuple[Path, Pad] | None) -> dict[str, Any]:
    """The status and output of one program, and its calls with all sites enabled.

    twin is the file with symbols; library is enabled with the program and counts for itself.
    """
    image = Image(path, pad)
    plain = _start(path, image.arch)
    result: dict[str, Any] = {"status": plain.returncode, "stdout": plain.stdout}
    if not image.sites:
        return result
    with tempfile.TemporaryDirectory() as folder:
        for neighbour in path.parent.glob("lib*.so"):
            shutil.copy(neighbour, folder)
        program = Path(shutil.copy(path, folder))
        parts = [(image, Image(twin, pad), program)]
        if library is not None:
            other = Image(*library)
            parts.append((other, other, Path(folder) / library[0].name))
        for part, symbols, copy in parts:
            target = symbols.address_of("ftrace_caller")
            assert target is not None, f"{copy.name} has no ftrace_caller"
            _enable(part, target, copy)
        enabled = _start(program, image.arch)
    calls = [int(number) for number in re.findall(r"calls: (\d+)", enabled.stdout)]
    first = plain.stdout.splitlines()[0]
    same = enabled.stdout.startswith(first) and enabled.returncode == plain.returncode
    assert same, f"{path.name} works otherwise when its sites call: {enabled}"
    return {**result, "calls": calls[0]} | ({"library_calls": calls[1]} if library else {})
