# SPDX-License-Identifier: MIT
"""A program in QEMU's place, for ``ftpatch boot`` of a small kernel."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.boot_small import STACKS, enabled, stream
from tests.support.command import PATIENCE, ROOT, ftpatch_command

__all__ = ["EVENTS", "boot", "boot_command", "machine_of"]

EVENTS = [("ksys_dup3", STACKS[0] - 8), ("vfs_read", STACKS[0] - 64)]
"""What such a machine sends."""


def machine_of(folder: Path, program: str) -> dict[str, str]:
    """The environment of a command that finds ``program`` for QEMU, with a small kernel in
    ``folder``. SENT is the file of what the kernel sends, TMPDIR an empty folder."""
    image = enabled(folder)
    sent, tool, own = folder / "sent", folder / "bin" / "qemu-system-x86_64", folder / "tmp"
    sent.write_bytes(stream(image, EVENTS))
    for made in (tool.parent, own):
        made.mkdir()
    tool.write_text(program)
    tool.chmod(0o755)
    path = f"{tool.parent}:{os.environ['PATH']}"
    more = {"PATH": path, "TMPDIR": str(own), "SENT": str(sent), "PYTHONPATH": str(ROOT)}
    return {**os.environ, **more}


def boot_command(folder: Path, *words: str) -> list[str]:
    """What stands in QEMU's place shares no memory."""
    return ftpatch_command("boot", str(folder / "vmlinux"), "--sink", "debugcon", *words)


def boot(folder: Path, machine: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """Boot the small kernel in ``folder``."""
    command = boot_command(folder, *words)
    return subprocess.run(command, env=machine, capture_output=True, text=True, timeout=PATIENCE)
