# SPDX-License-Identifier: MIT
"""Commands in a copy of the package into which files were dropped."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.command import ROOT, Result

__all__ = ["run_in_house"]

DRIVER = """
import json, sys
from tests.support.command import ftpatch, app
print(app.__file__, file=sys.stderr)
results = [ftpatch(*words) for words in json.load(sys.stdin)]
json.dump([[one.code, one.out, one.err] for one in results], sys.stdout)
"""


def run_in_house(house: Path, folder: str, commands: Sequence[str]) -> dict[str, Result]:
    """Results by command, of all run by one process in a folder of the house. QEMU is not found."""
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        env={"PYTHONPATH": f"{house}:{ROOT}", "PATH": str(house / "no-qemu")},
        input=json.dumps([shlex.split(one) for one in commands]),
        capture_output=True,
        text=True,
        check=False,
        cwd=house / folder,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(str(house / "ftpatch")), done.stderr
    said = re.sub(r"[\d.]+ seconds", "SECONDS", done.stdout)
    return dict(zip(commands, (Result(*row) for row in json.loads(said)), strict=True))
