# SPDX-License-Identifier: MIT
"""Machines that lose what a hardware breakpoint has told.

To Linux, a debug exception with an empty DR6 is an INT1, for which it ends the program by SIGTRAP
(exc_debug_user() in arch/x86/kernel/traps.c). Virtual machines may see such ones now and then, from
hosts before "KVM: x86: Load DR6 with guest value only before entering .vcpu_run() loop" (v6.14).
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

__all__ = ["loses_traps"]

SOURCE = Path(__file__).parents[1] / "programs" / "lost_traps.c"
TRIES = 150
LOST = 2


@cache
def loses_traps() -> bool:
    """Test whether this machine ends a program by a SIGTRAP that no breakpoint accounts for: 20
    seconds, with nothing of ftpatch."""
    if os.uname().machine != "x86_64":
        return False
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "lost_traps")
        words = ["gcc", "-O1", "-w", "-pthread", str(SOURCE), "-o", str(program)]
        subprocess.run(words, check=True)
        runs = (subprocess.run([program], check=False).returncode for _ in range(TRIES))
        return any(code == LOST for code in runs)
