# SPDX-License-Identifier: MIT
"""ftpatch as a user runs it: a program with a command line, an exit status and JSON lines."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Answer", "ftpatch", "read_check"]

UNREADABLE = "unreadable"  # instead of an invariant, where `check` refuses the file
RUN_LIMIT = 600  # seconds; a run takes 1 to 5


@dataclass(frozen=True)
class Answer:
    """What one run said."""

    status: int
    objects: list[dict[str, Any]]  # one per line of standard output
    complaint: str

    @property
    def one(self) -> dict[str, Any]:
        (single,) = self.objects
        return single


@dataclass(frozen=True)
class Foretold:
    """What `check` says, in the form for people: it has the kernel's words and its count."""

    text: str
    findings: tuple[str, ...]  # invariants that are broken
    dies: bool = False  # the verdict is that the kernel does not live


def read_check(path: Path) -> Foretold:
    """Run `check`, which finds something or does not."""
    command = [sys.executable, "-m", "ftpatch", "check", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT)
    if done.returncode == 2:
        return Foretold(done.stderr, (UNREADABLE,))
    assert done.returncode in (0, 1), done.stderr
    said = re.findall(rf"^{re.escape(str(path))}: ([a-z_-]+): ", done.stdout, re.MULTILINE)
    found = tuple(sorted(set(said) - {"ftrace", "note", "verdict"}))
    assert bool(found) == (done.returncode == 1), done.stdout
    dies = re.search(
        r": verdict: the kernel .*\b(will not boot|will crash)$", done.stdout, re.MULTILINE
    )
    return Foretold(done.stdout, found, dies is not None)


def ftpatch(verb: str, *words: str | Path, expect: int | None = 0) -> Answer:
    """``ftpatch VERB WORDS --json``; ``expect`` is the exit status, None for any."""
    command = [sys.executable, "-m", "ftpatch", verb, *map(str, words), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT)
    if expect is not None:
        said = f"exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        assert done.returncode == expect, f"{' '.join(command[2:])}: {said}"
    objects = [json.loads(line) for line in done.stdout.splitlines() if line.strip()]
    return Answer(done.returncode, objects, done.stderr)
