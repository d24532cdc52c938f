# SPDX-License-Identifier: MIT
"""What a command loads before it does anything: libraries are imported where they are used."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.boot_images import bzimage, zboot
from tests.support.command import ROOT
from tests.support.trace_writer import ENTRY, EXIT, Thread, TraceFile

HEAVY = (
    "capstone",
    "elftools",
    "keystone",
    "numpy",
    "perfetto",
    "pydantic",
    "rich",
    "textual",
    "zstandard",
)


def _loaded(script: str) -> set[str]:
    """Heavy libraries that are loaded when a script ends."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{script}\nprint(*sys.modules)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {*HEAVY} & {*done.stdout.splitlines()[-1].split()}


def test_unpacking_begins_before_the_libraries_load() -> None:
    """They take as long as a bzImage takes to unpack, and load beside it."""
    assert _loaded("import ftpatch.image.prefetch") == set()


@pytest.mark.parametrize("wrap", [bzimage, zboot])
def test_unpacking_needs_no_library(tmp_path: Path, wrap: Callable[..., bytes]) -> None:
    kernel = (ROOT / "samples/built/vmlinux-x86_64").read_bytes()
    path = tmp_path / "boxed"
    stream = gzip.compress(kernel, 1)  # which ends in its size, as both want it
    path.write_bytes(zboot(stream, len(stream), "gzip") if wrap is zboot else bzimage(stream))
    script = f"""
from pathlib import Path
from ftpatch.image.payload import read_payload
path = Path({str(path)!r})
payload = read_payload(path, memoryview(path.read_bytes()))
assert payload.layers and len(payload.data) == {len(kernel)}
"""
    assert _loaded(script) == set()


def test_a_help_needs_no_library() -> None:
    script = "from ftpatch.cli.app import run\nsys.argv = ['ftpatch', '--help']\nassert run() == 0"
    assert _loaded(script) <= {"rich"}


def test_words_and_paths_are_taken_as_they_are(tmp_path: Path) -> None:
    """Typer has pydantic look at what it makes a value of; of these it need not."""
    image, output = ROOT / "samples/built/vmlinux-x86_64", tmp_path / "output"
    words = ["ftpatch", "disable", str(image), "-f", "vfs_*", "-q", "-o", str(output)]
    script = f"from ftpatch.cli.app import run\nsys.argv = {words}\nassert run() == 0"
    assert "pydantic" not in _loaded(script) and output.exists()


def test_a_report_that_is_printed_needs_no_screen(tmp_path: Path) -> None:
    trace = TraceFile([Thread(7).add(ENTRY, "main", 0).add(EXIT, "main", 9)]).write(tmp_path / "t")
    words = ["ftpatch", "report", str(trace)]
    script = f"from ftpatch.cli.app import run\nsys.argv = {words}\nassert run() == 0"
    assert not _loaded(script) & {"textual"}
