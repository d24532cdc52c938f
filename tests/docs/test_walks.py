# SPDX-License-Identifier: MIT
"""The walks in docs/walks.md go where the page says: through these functions, in this order."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.doc_pages import ROOT, blocks, steps

PAGE = ROOT / "docs" / "walks.md"
ROW = re.compile(r"^\| `(ftpatch/[\w./]+)` \| `([\w.]+)` \|", re.MULTILINE)

WALKER = """
import os, sys, threading
root, out = sys.argv[1:3]
del sys.argv[1:3]
sys.path.insert(0, root)
calls = []

def called(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(root + "/ftpatch/"):
        calls.append(code.co_filename[len(root) + 1 :] + " " + code.co_qualname)

def leave(code, leave=os._exit):
    sys.setprofile(None)
    with open(out, "w") as file:
        print(*calls, sep="\\n", file=file)
    leave(code)

os._exit = leave
from ftpatch.cli import main
threading.setprofile(called)
sys.setprofile(called)
main()
"""


def _sections() -> list[str]:
    """The parts of the page that have a walk."""
    parts = re.split(r"^(?=## )", PAGE.read_text(), flags=re.MULTILINE)
    return [part for part in parts if ROW.search(part)]


def _calls(section: str, folder: Path) -> list[tuple[str, str]]:
    """Run the commands of a section; the calls of the last one, as file and qualified name."""
    shutil.copytree(ROOT / "samples", folder / "samples")
    (folder / "walker.py").write_text(WALKER)
    page = folder / "section.md"
    page.write_text(section)
    command = f'ftpatch() {{ {sys.executable} walker.py {ROOT} calls "$@"; }}\n'
    for block in blocks(page):
        if block.language == "console":
            command += "".join(line for line, _ in steps(block))
    subprocess.run(["bash", "-e", "-c", command], cwd=folder, check=True, capture_output=True)
    lines = (folder / "calls").read_text().splitlines()
    return [(path, name) for path, _, name in (line.partition(" ") for line in lines)]


@pytest.mark.parametrize("section", _sections(), ids=lambda text: text.split(maxsplit=3)[2])
def test_a_walk_goes_where_the_page_says(section: str, tmp_path: Path) -> None:
    calls = iter(_calls(section, tmp_path))
    before = "the start"
    for path, name in ROW.findall(section):
        assert (ROOT / path).is_file(), path
        found = any(
            file == path and name in (called, called.split(".<locals>.")[0], called.split(".")[-1])
            for file, called in calls
        )
        assert found, f"{path}: {name} is not called after {before}"
        before = f"{path}: {name}"


def test_there_are_three_walks() -> None:
    assert len(_sections()) == 3
