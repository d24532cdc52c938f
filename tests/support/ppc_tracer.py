# SPDX-License-Identifier: MIT
"""ppc64le's boot tracer in a process of qemu-user: Unicorn has only big-endian PowerPC."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

from ftpatch.arch.boot import Wanted, boot_tracer_of

__all__ = ["PpcMachine"]

SOURCE = Path(__file__).with_name("ppc_tracer.c")
COMPILER, EMULATOR = "powerpc64le-linux-gnu-gcc", "qemu-ppc64le-static"
HYPERVISOR = bytes.fromhex("22000044")  # sc 1
CODE, WORD = 0x10_0000, 0x20_0000
MODES = {"": 0, "without": 2, "busy": 3}
"""Of the hypervisor: a console for events, none, or one that refuses at first."""


class PpcMachine:
    """Calls of a tracer, and what they ``sent``. Memory is read and written as Unicorn's is."""

    def __init__(self, wanted: Wanted, count: int, mode: str) -> None:
        self.laid = boot_tracer_of("ppc64le").assemble(wanted)
        self.sent, self.uc = b"", self
        self._process = subprocess.Popen(
            [EMULATOR, str(_program())], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.mem_write(CODE, self.laid.code.replace(HYPERVISOR, (1).to_bytes(4, "little")))
        self.mem_write(WORD, count.to_bytes(4, "little"))
        self._say(f"m {MODES[mode]}")

    def __del__(self) -> None:
        self._process.kill()
        self._process.communicate()

    def mem_read(self, at: int, size: int) -> bytearray:
        """Read memory."""
        return bytearray.fromhex(self._say(f"r {at:x} {size:x}"))

    def mem_write(self, at: int, data: bytes) -> None:
        """Write memory."""
        self._say(f"w {at:x} {data.hex()}")

    def call(self, site: int, entry: int, sp: int, returns: int = CODE + 0x1234) -> None:
        """As the site would, in a function that ``returns`` there."""
        said = self._say(f"c {CODE + entry:x} {CODE + site:x} {sp:x} {returns:x}")
        assert not said.strip("0123456789abcdef"), said
        self.sent += bytes.fromhex(said)

    def _say(self, line: str) -> str:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@cache
def _program() -> Path:
    for name in (COMPILER, EMULATOR):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")
    out = Path(mkdtemp()) / "ppc_tracer"
    command = [COMPILER, "-O1", "-Wall", "-Werror", "-static", str(SOURCE), "-o", str(out)]
    subprocess.run(command, check=True)
    return out
