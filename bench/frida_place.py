# SPDX-License-Identifier: MIT
"""Frida, which no test needs: fetched for a bench, into its own folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

__all__ = ["frida_place"]

FRIDA = "frida==16.5.9"


def frida_place(folder: Path) -> Path | None:
    """Where Frida is; None where it cannot be had."""
    place = folder / "frida"
    words = (sys.executable, "-m", "pip", "install", "-q", "--target", str(place), FRIDA)
    done = subprocess.run(words, capture_output=True, check=False)
    if done.returncode:
        print("no Frida")
        return None
    return place
