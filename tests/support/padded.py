# SPDX-License-Identifier: MIT
"""Small programs with pads, for the machine that runs the tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["padded"]


def padded(folder: Path, source: str, *flags: str) -> Path:
    """Compile ``source``, whose functions begin with pads, to FOLDER/prog."""
    path = folder / "prog"
    path.with_suffix(".c").write_text(source)
    words = ["gcc", "-O1", "-fpatchable-function-entry=5", *flags, f"{path}.c", "-o", str(path)]
    subprocess.run(words, check=True)
    return path
