"""ftpatch as a user runs it: a program with a command line, an exit status and JSON lines."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Answer", "ftpatch"]

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


def ftpatch(verb: str, *words: str | Path, expect: int | None = 0) -> Answer:
    """``ftpatch VERB WORDS --json``; ``expect`` is the exit status, None for any."""
    command = [sys.executable, "-m", "ftpatch", verb, *map(str, words), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT)
    if expect is not None:
        said = f"exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        assert done.returncode == expect, f"{' '.join(command[2:])}: {said}"
    objects = [json.loads(line) for line in done.stdout.splitlines() if line.strip()]
    return Answer(done.returncode, objects, done.stderr)
