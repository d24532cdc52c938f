# SPDX-License-Identifier: MIT
"""``ftpatch boot`` on a kernel, and what it said; functions of a kernel replaced by a few words."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .boot_oracle import SAME
from .cli import RUN_LIMIT
from .independent import Vmlinux

__all__ = ["Booted", "boot_traced", "hang", "planted", "triple_fault"]

BEHIND = {
    "x86_64": 5,
    "i386": 5,
    "arm64": 4,
    "riscv64": 8,
    "ppc64le": 4,
}  # bytes from a site to behind its call
ENDED = (0, 1, 124)  # 1: with a fault; 124: ended for its time
LAST = re.compile(r"last functions: (.*)")


@dataclass(frozen=True)
class Booted:
    """A traced boot: its rows, and what was said on standard error."""

    rows: list[dict[str, Any]]
    said: str

    @property
    def functions(self) -> list[int]:
        """Where each function begins that was called."""
        return [int(row["address"], 16) for row in self.rows if row["event"] == "entry"]

    @property
    def last(self) -> list[str]:
        """The functions that it names as the last."""
        found = LAST.search(self.said)
        assert found is not None, self.said
        return found[1].split(", ")


def boot_traced(vmlinux: Path, *words: str, machine: Sequence[str] = ()) -> Booted:
    """Without KASLR, by the same clock as the oracle's boot. ``machine``: more words for QEMU."""
    command = [sys.executable, "-m", "ftpatch", "boot", str(vmlinux), "--append", "nokaslr"]
    done = subprocess.run(
        [*command, "--format", "json", *words, "--", *SAME, *machine],
        capture_output=True, text=True, timeout=RUN_LIMIT,
    )  # fmt: skip
    assert done.returncode in ENDED, done.stderr
    return Booted([json.loads(line) for line in done.stdout.splitlines()], done.stderr)


@contextmanager
def planted(image: Vmlinux, ip: int, code: bytes, scratch: Path) -> Iterator[Path]:
    """A copy of a kernel with other code behind one of its sites."""
    path = scratch / f"{image.path.parent.name}.planted"
    shutil.copyfile(image.path, path)
    with path.open("r+b") as file:
        file.seek(image.offset(ip + BEHIND[image.arch]))
        file.write(code)
    try:
        yield path
    finally:
        path.unlink()


def hang(image: Vmlinux) -> bytes:
    """A branch to itself."""
    if image.arch == "arm64":
        return bytes.fromhex("00000014")  # b .
    if image.arch == "riscv64":
        return bytes.fromhex("6f000000")  # j .
    if image.arch == "ppc64le":
        return bytes.fromhex("00000048")  # b .
    return bytes.fromhex("ebfe")  # jmp .


def triple_fault(image: Vmlinux, ip: int) -> bytes:
    """An exception without a table of handlers, which resets an x86; the others go off."""
    if image.arch == "arm64":
        # mov w0, #8; movk w0, #0x8400, lsl #16 (PSCI's SYSTEM_OFF); hvc #0
        return bytes.fromhex("00018052 0080b072 020000d4")
    if image.arch == "riscv64":
        return bytes.fromhex("93088000 73000000")  # li a7, 8 (SBI's sbi_shutdown); ecall
    if image.arch == "ppc64le":
        # bcl 20, 31, .+4; mflr 4; addi 4, 4, 28; clrldi 4, 4, 4; li 3, 0; ori 3, 3, 0xf000; sc 1
        code = bytes.fromhex("05009f42 a602887c 1c008438 00018478 00006038 00f06360 22000044")
        # b .; the arguments of RTAS, and no more: power-off (2003), 2 of them, 1 result
        return code + bytes.fromhex("00000048 00002003 00000002 00000001") + bytes(12)
    at = 2 if image.bits == 64 else ip + BEHIND[image.arch] + 9  # rip counts from the ud2
    lidt = bytes.fromhex("0f011d") + at.to_bytes(4, "little")
    return lidt + bytes.fromhex("0f0b") + bytes(10)  # lidt [table]; ud2; the table: all zeros
