# SPDX-License-Identifier: MIT
"""The samples and what their manifest says of them; the manifest never comes from ftpatch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["BUILT", "FOLDER", "KERNELS", "PROGRAMS", "SAMPLES", "WITH_TABLE", "Sample", "sample"]

FOLDER = Path(__file__).parent.parent.parent / "samples"
BUILT = FOLDER / "built"


@dataclass(frozen=True)
class Sample:
    """One file and its entry in the manifest: ``pad`` is N, M of -fpatchable-function-entry."""

    name: str
    pad: tuple[int, int]
    expected: dict[str, Any]
    ftrace_caller: int | None
    run: dict[str, Any] | None

    @property
    def path(self) -> Path:
        """Where the file is."""
        return BUILT / self.name

    @property
    def data(self) -> bytes:
        """Its bytes."""
        return self.path.read_bytes()

    @property
    def arch(self) -> str:
        """x86_64, i386, arm64 or riscv64."""
        return str(self.expected["arch"])

    @property
    def kernel(self) -> bool:
        """Whether it is a linked kernel."""
        return bool(self.expected["container"] == "vmlinux")


@cache
def _manifest() -> tuple[Sample, ...]:
    entries = json.loads((FOLDER / "manifest.json").read_text())
    return tuple(
        Sample(
            entry["name"],
            (entry["pad"][0], entry["pad"][1]),
            entry["expected"],
            None if entry["ftrace_caller"] is None else int(entry["ftrace_caller"], 16),
            entry.get("run"),
        )
        for entry in entries
    )


SAMPLES = _manifest()
KERNELS = tuple(s for s in SAMPLES if s.kernel)
PROGRAMS = tuple(s for s in SAMPLES if not s.kernel)
WITH_TABLE = tuple(s for s in SAMPLES if s.expected["table"] is not None)
"""Those whose table the independent reader finds."""


def sample(name: str) -> Sample:
    """The sample of that name."""
    return next(s for s in SAMPLES if s.name == name)
