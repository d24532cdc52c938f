# SPDX-License-Identifier: MIT
"""Reports of boot tracers' streams: every format, two tasks, damage, and streams of others."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.boot_small import BASE, STACKS, enabled, stream
from tests.support.command import ftpatch
from tests.support.images import STEP, symbols_at

ONE, TWO = STACKS
EVENTS = [
    ("ksys_dup3", ONE - 8),
    ("vfs_read", ONE - 64),
    ("schedule", ONE - 128),
    ("do_exit", TWO - 8),  # another task
    ("vfs_read", TWO - 80),
    ("vfs_write", ONE - 64),  # vfs_read and schedule have returned
    ("schedule", ONE - 128),
]


@pytest.fixture
def traced(tmp_path: Path) -> tuple[Path, Path]:
    """A kernel and what it sent."""
    image, path = enabled(tmp_path), tmp_path / "stream"
    path.write_bytes(stream(image, EVENTS))
    return image, path


def test_tasks_are_told_apart_and_depth_is_right(traced: tuple[Path, Path]) -> None:
    image, path = traced
    rows = ftpatch("report", path, "--image", image, "--json").json
    entries = [(r["tid"], r["depth"], r["function"]) for r in rows if r["event"] == "entry"]
    assert entries == [
        (1, 0, "ksys_dup3"), (1, 1, "vfs_read"), (1, 2, "schedule"), (2, 0, "do_exit"),
        (2, 1, "vfs_read"), (1, 1, "an_alias"), (1, 2, "schedule"),
    ]  # fmt: skip
    one = ftpatch("report", path, "--image", image, "--json", "--tid", "2").json
    assert {row["function"] for row in one} == {"do_exit", "vfs_read"}
    assert ftpatch("report", path, "--image", image, "--tid", "3").code == 2
    assert ftpatch("report", path, "--image", image, "--tid", "0").code == 2


def test_graph(traced: tuple[Path, Path]) -> None:
    image, path = traced
    done = ftpatch("report", path, "--image", image)
    assert done.code == 0 and "event numbers" in done.out
    rows = [line.split("|") for line in done.out.splitlines() if not line.startswith("#")]
    assert [row[-1] for row in rows if row[0].startswith(" 1)")][:4] == [
        "  ksys_dup3() {",
        "    vfs_read() {",
        "      schedule();",
        "    } /* vfs_read */",
    ]


@pytest.mark.parametrize(
    ("format_", "held"),
    [
        ("profile", "Hit"),
        ("function", "vfs_read"),
        ("folded", "ksys_dup3;vfs_read;schedule "),
        ("flamegraph", "vfs_read"),
        ("html", "vfs_read"),
        ("chrome", "traceEvents"),
        ("json", '"event": "entry"'),
    ],
)
def test_formats(traced: tuple[Path, Path], format_: str, held: str) -> None:
    image, path = traced
    done = ftpatch("report", path, "--image", image, "--format", format_)
    assert done.code == 0, done.err
    assert held in done.out
    if format_ == "chrome":
        events = json.loads(done.out)["traceEvents"]
        assert {event["tid"] for event in events if event["ph"] == "B"} == {1, 2}


def test_perfetto(traced: tuple[Path, Path], tmp_path: Path) -> None:
    image, path = traced
    out = tmp_path / "out"
    done = ftpatch("report", path, "--image", image, "--format", "perfetto", "-o", out)
    assert done.code == 0, done.err
    assert b"ksys_dup3" in out.read_bytes()


@pytest.mark.parametrize(
    ("format_", "words"),
    [
        ("uftrace", ["uftrace", "replay", "--no-pager", "--color=no", "-d"]),
        ("trace-dat", ["trace-cmd", "report", "-O", "fgraph:tailprint=1", "-i"]),
    ],
)
def test_kernels_functions_in_the_tools_of_others(
    traced: tuple[Path, Path], tmp_path: Path, format_: str, words: list[str]
) -> None:
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    image, path = traced
    out = tmp_path / "out"
    done = ftpatch("report", path, "--image", image, "--format", format_, "-o", out)
    assert done.code == 0, done.err
    told = subprocess.run([*words, out], capture_output=True, text=True, check=True).stdout
    ours = ftpatch("report", path, "--image", image).out
    assert (
        _called(told)
        == _called(ours)
        == [
            *("ksys_dup3", "vfs_read", "schedule", "do_exit", "vfs_read", "an_alias", "schedule"),
        ]
    )


def _called(graph: str) -> list[str]:
    """The functions that a graph has, in its order."""
    return re.findall(r"\|\s+(\w+)\(\)[ ;]", graph)


def test_damage_is_told_with_its_place(traced: tuple[Path, Path]) -> None:
    image, path = traced
    raw = path.read_bytes()
    path.write_bytes(raw[:15] + b"[    0.1] hello\r\n" + raw[15:-3])
    done = ftpatch("report", path, "--image", image, "--json")
    assert done.code == 0
    assert sum(row["event"] == "entry" for row in done.json) == len(EVENTS) - 1
    assert "29 bytes outside of any event, in 2 places, the first at offset 15" in done.err


def test_streams_of_others_are_refused(traced: tuple[Path, Path]) -> None:
    image, path = traced
    own = path.read_bytes()
    path.write_bytes(own + random.Random(3).randbytes(5000))
    done = ftpatch("report", path, "--image", image)
    assert done.code == 2 and "only 7 events of this kernel" in done.err
    assert done.err.count("\n") == 1
    assert ftpatch("report", path, "--image", image, "--force").code == 0
    for raw, said in ((b"", "the file is empty"), (b"\1" * 50, "no events of this kernel")):
        path.write_bytes(raw)
        done = ftpatch("report", path, "--image", image)
        assert done.code == 2 and said in done.err
    for raw, what in (
        (b"[    0.1] hello\r\n", "text"),
        ("Grüße".encode()[:-2], "text"),
        (image.read_bytes(), "an ELF file"),
    ):
        path.write_bytes(raw)
        done = ftpatch("report", path, "--image", image.with_name("vmlinux"))
        said = f"{path}: neither a trace file nor a boot tracer's stream, but {what}; "
        assert done.code == 2 and done.err.startswith(f"ftpatch: {said}"), done.err
    path.write_bytes(own)
    done = ftpatch("report", path, "--image", image.with_name("vmlinux"))
    assert done.code == 2 and "no boot tracer" in done.err
    done = ftpatch("report", path)
    assert done.code == 2 and "--image" in done.err


def test_damage_everywhere_takes_no_time(traced: tuple[Path, Path]) -> None:
    image, path = traced
    raw = path.read_bytes()
    path.write_bytes((raw + b"x") * 20000)
    done = ftpatch("report", path, "--image", image, "--format", "profile")
    assert done.code == 0 and "20000 bytes outside of any event, in 20000 places" in done.err


def test_a_callee_that_returned_has_called_nothing(tmp_path: Path) -> None:
    image, path = enabled(tmp_path), tmp_path / "stream"
    at = symbols_at(BASE)
    events: list[tuple[str, int, int]] = [
        ("ksys_dup3", ONE - 8, BASE - 64),
        ("vfs_read", ONE - 64, at["ksys_dup3"] + 20),
        ("schedule", ONE - 128, at["ksys_dup3"] + STEP),  # a call at its very end
        ("do_exit", ONE - 192, BASE + (1 << 28)),  # of a module: by the stack pointer
    ]
    path.write_bytes(stream(image, events))
    rows = ftpatch("report", path, "--image", image, "--json").json
    assert [(r["depth"], r["function"]) for r in rows if r["event"] == "entry"] == [
        (0, "ksys_dup3"), (1, "vfs_read"), (1, "schedule"), (2, "do_exit"),
    ]  # fmt: skip
