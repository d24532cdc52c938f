# SPDX-License-Identifier: MIT
"""What the reader and the prover know of each architecture; nothing of it comes from ftpatch."""

from __future__ import annotations

import subprocess
from pathlib import Path

from capstone import (
    CS_ARCH_ARM64,
    CS_ARCH_RISCV,
    CS_ARCH_X86,
    CS_MODE_32,
    CS_MODE_64,
    CS_MODE_ARM,
    CS_MODE_RISCV64,
    CS_MODE_RISCVC,
)

__all__ = ["ARCHES", "DECODERS", "RELATIVE", "runner"]

ARCHES = {
    "EM_X86_64": "x86_64",
    "EM_386": "i386",
    "EM_AARCH64": "arm64",
    "EM_RISCV": "riscv64",
}
DECODERS = {
    "x86_64": (CS_ARCH_X86, CS_MODE_64),
    "i386": (CS_ARCH_X86, CS_MODE_32),
    "arm64": (CS_ARCH_ARM64, CS_MODE_ARM),
    "riscv64": (CS_ARCH_RISCV, CS_MODE_RISCV64 | CS_MODE_RISCVC),
}
# R_X86_64_RELATIVE, R_386_RELATIVE, R_AARCH64_RELATIVE, R_RISCV_RELATIVE
RELATIVE = {"x86_64": 8, "i386": 8, "arm64": 0x403, "riscv64": 3}
# The emulator, the compiler that knows where the libraries are, and one of these.
EMULATED = {
    "arm64": ("qemu-aarch64-static", "aarch64-linux-gnu-gcc", "ld-linux-aarch64.so.1"),
    "riscv64": ("qemu-riscv64-static", "riscv64-linux-gnu-gcc", "ld-linux-riscv64-lp64d.so.1"),
}


def runner(arch: str) -> list[str]:
    """What runs a program of that architecture; x86-64 machines run i386 themselves."""
    if arch not in EMULATED:
        return []
    emulator, compiler, library = EMULATED[arch]
    loader = subprocess.check_output([compiler, f"-print-file-name={library}"], text=True)
    return [emulator, "-L", str(Path(loader.strip()).resolve().parent.parent)]
