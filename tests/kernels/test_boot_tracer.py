"""Kernels that trace themselves from their first function on boot as they did before."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .cli import RUN_LIMIT, ftpatch
from .independent import Vmlinux
from .qemu import Console, boot, kaslr_choices

WORDS = {
    "x86_64": ("-debugcon", "file:{}"),
    "i386": ("-debugcon", "file:{}"),
    "arm64": (
        *("-chardev", "file,id=events,path={}"),
        *("-semihosting-config", "enable=on,target=native,chardev=events"),
    ),
}
FIRST = "start_kernel"
MOST = 20000


@pytest.fixture
def traceable(image: Vmlinux) -> Vmlinux:
    """A kernel of an architecture that has a boot tracer."""
    if image.arch not in WORDS:
        pytest.skip(f"{image.arch} has no boot tracer")
    return image


def _report(stream: Path, image: Path) -> list[dict[str, object]]:
    words = ["report", str(stream), "--image", str(image), "--json"]
    command = [sys.executable, "-m", "ftpatch", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_all_sites_boot(
    traceable: Vmlinux, untouched: Callable[[Vmlinux, bool], Console], tmp_path: Path
) -> None:
    path = tmp_path / "vmlinux.boot"
    said = ftpatch("enable", traceable.path, "--tracer", "boot", "--max", str(MOST), "-o", path).one
    assert said["changed"] == said["dropped"] == len(traceable.sites)
    for kaslr in kaslr_choices(traceable.arch):
        stream = tmp_path / f"stream{kaslr}"
        words = [word.format(stream) for word in WORDS[traceable.arch]]
        seen = boot(path, traceable.arch, tmp_path, *words, kaslr=kaslr)
        plain = untouched(traceable, kaslr)
        assert seen.reached_panic, seen.tail
        assert seen.ftrace_bug is None, seen.ftrace_bug
        assert seen.warnings <= plain.warnings, seen.warnings - plain.warnings
        rows = _report(stream, path)
        entries = [row for row in rows if row["event"] == "entry"]
        assert len(entries) == MOST
        start = next(row for row in entries if row["function"] == FIRST)
        assert start["depth"] in (0, 1)  # x86 may have a traced caller
        inner = [row for row in entries if row["tid"] == start["tid"] and row["depth"]]
        assert len(inner) > MOST / 2
        stream.unlink()
    path.unlink()


def test_until_is_the_last_event(traceable: Vmlinux, tmp_path: Path) -> None:
    path, stream = tmp_path / "vmlinux.boot", tmp_path / "stream"
    ftpatch(
        "enable", traceable.path, "--tracer", "boot", "-f", "*init*", "--until", "vfs_caches_init",
        "-o", path,
    )  # fmt: skip
    words = [word.format(stream) for word in WORDS[traceable.arch]]
    seen = boot(path, traceable.arch, tmp_path, *words)
    assert seen.reached_panic, seen.tail
    entries = [row for row in _report(stream, path) if row["event"] == "entry"]
    assert entries[-1]["function"] == "vfs_caches_init"
    assert len(entries) > 20
    path.unlink()
