# SPDX-License-Identifier: MIT
"""Progress of what takes more than a second: a terminal's emulator says what stood there when."""

from __future__ import annotations

import gzip
import json
import random
import re
import shutil
from pathlib import Path

import pytest

from tests.support.command import ftpatch, ftpatch_process, patched_process
from tests.support.samples import sample
from tests.support.terminals import Frame, Shown, on_screen
from tests.support.trace_writer import ENTRY, EXIT, Thread, TraceFile, program

FILES = 12
SLOW_FILES = """
import time
import ftpatch.ftrace.sites as sites
real = sites.read_sites
def slow(*words, **more):
    time.sleep(0.25)
    return real(*words, **more)
sites.read_sites = slow
"""
SLOW_PIECES = """
import time, zlib
class Slow:
    def __init__(self, *words):
        self.one = real(*words)
    def __getattr__(self, name):
        return getattr(self.one, name)
    def decompress(self, *words):
        time.sleep(0.5)
        return self.one.decompress(*words)
real, zlib.decompressobj = zlib.decompressobj, Slow
"""
SLOW_ONE = "import time\nimport ftpatch.elf.elf_file as file\nreal = file.map_file\n"
SLOW_ONE += "file.map_file = lambda *words: (time.sleep(2.5), real(*words))[1]\n"
SLOW_COPY = """
import time
from ftpatch.io.output import Copy
real = Copy._by_range
def slow(self, count):
    time.sleep(0.01)
    return real(self, min(count, self.size // 200 + 1))
Copy._by_range = slow
"""
SLOW_BATCHES = """
import time
import ftpatch.trace.batches as batches
import ftpatch.trace.events as events
batches.BATCH_WORDS = 1 << 13
real = events.read_rows
def slow(*words):
    for rows in real(*words):
        time.sleep(0.25)
        yield rows
events.read_rows = slow
"""
BAR = re.compile(r"^\S images (\d+)/12  (━*)(─*)  +(\d+)%  (\S+) (s|left|s left)$")
CLOCK = re.compile(r"^\S list  (\d+) s$")
ANY = re.compile(r"^[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏|/\\-] ")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder of programs, less than a second worker is started for."""
    folder = tmp_path / "tree"
    folder.mkdir()
    for number in range(FILES):
        shutil.copy(sample("pad").path, folder / f"pad{number:02}")
    return folder


def _progress(shown: Shown) -> list[tuple[float, str]]:
    """What is no result, and when it stood there."""
    return [(frame.seconds, line) for frame in shown.frames for line in _bars(frame)]


def _bars(frame: Frame) -> list[str]:
    return [line for line in frame.lines if ANY.match(line)]


def test_a_tree_has_a_bar(tree: Path) -> None:
    shown = on_screen("status", tree, script=SLOW_FILES, columns=80)
    found = _progress(shown)
    assert found[0][0] >= 1.0, "the first second is silent"
    bars = [match for _, line in found if (match := BAR.match(line))]
    done = [int(match[1]) for match in bars]
    assert len({*done}) > 3 and done == sorted(done) and done[-1] <= FILES
    for match in bars:
        part = int(match[1]) / FILES
        assert int(match[4]) == int(100 * part)
        assert len(match[2]) == int(part * len(match[2] + match[3]))
    left = [int(match[5]) for match in bars if match[6] == "s left"]
    took = shown.frames[-1].seconds
    assert left and max(left) <= 2 * took and left[-1] <= 1 + took / FILES
    assert shown.lines == ftpatch_process("status", tree).out.splitlines(), "nothing is left"
    assert max(sum(bool(line) for line in frame.lines) for frame in shown.frames[:-2]) <= 1


@pytest.mark.parametrize("columns", [20, 40, 200])
def test_it_stays_in_its_line(columns: int, tree: Path) -> None:
    shown = on_screen("check", tree, script=SLOW_FILES, columns=columns)
    for frame in shown.frames:
        if bars := _bars(frame):
            *above, line = frame.lines  # what is printed at the end comes above it
            assert bars == [line] and len(line) < columns and above == shown.lines[: len(above)]
            assert columns < 40 or re.search(r"\d+/12 .*\d+%  \d+ s", line)
    assert _progress(shown) and shown.lines[0].startswith("12 images, 0 unrea"[:columns])


def test_unpacking_has_a_bar(tmp_path: Path) -> None:
    path = tmp_path / "vmlinux.gz"
    noise = random.Random(7).randbytes(600_000)  # does not get smaller
    path.write_bytes(gzip.compress(sample("vmlinux-x86_64").path.read_bytes() + noise, 1))
    shown = on_screen("extract", path, script=SLOW_PIECES)
    bars = [line for _, line in _progress(shown) if "unpacking" in line]
    parts = [int(match[1]) for line in bars if (match := re.search(r"(\d+)%  \d+ s", line))]
    assert len({*parts}) > 2 and parts == sorted(parts) and any("left" in line for line in bars)
    assert shown.lines[-1] == f"wrote {tmp_path / 'vmlinux'}" and len(shown.lines) == 2


def test_copying_has_a_bar(tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.write_bytes(sample("pad").path.read_bytes() + bytes(range(1, 256)) * 40000)
    shown = on_screen("enable", path, "--tracer", "nop", "-f", "main", script=SLOW_COPY)
    bars = [line for _, line in _progress(shown) if "copying" in line]
    assert shown.code == 0 and any("left" in line for line in bars), shown.lines
    assert not any(ANY.match(line) for line in shown.lines)


def test_reading_a_trace_has_a_bar(tmp_path: Path) -> None:
    threads = []
    for tid in range(1, 9):
        thread = Thread(tid)
        for number in range(2000):
            thread.add(ENTRY, "walk", number * 20).add(EXIT, "walk", number * 20 + 9)
        threads.append(thread)
    header: dict[str, int | bytes] = {"path": bytes(program(tmp_path / "prog"))}
    trace = TraceFile(threads, header=header).write(tmp_path / "trace")
    plain = ftpatch("report", trace, "--format", "folded")
    for words in (("--format", "folded"), ("--format", "folded", "-o", tmp_path / "out")):
        shown = on_screen("report", trace, *words, script=SLOW_BATCHES, columns=120)
        bars = [line for _, line in _progress(shown) if " reading the recording " in line]
        assert any(re.search(r" [1-9]\d*%  \d+ s left", line) for line in bars), shown.frames
        written = [f"wrote {tmp_path / 'out'}"]
        assert shown.lines == (written if "-o" in words else plain.out.splitlines())


def test_what_cannot_be_known_has_a_clock() -> None:
    shown = on_screen("list", sample("pad").path, script=SLOW_ONE)
    found = _progress(shown)
    clocks = [int(match[1]) for _, line in found if (match := CLOCK.match(line))]
    assert len(clocks) == len(found), found
    assert clocks[0] >= 1 and clocks == sorted(clocks) and clocks[-1] <= shown.frames[-1].seconds
    assert len({line[0] for _, line in found}) > 3, "it moves"
    assert shown.lines == ftpatch_process("list", sample("pad").path).out.splitlines()


def test_results_come_between(tree: Path) -> None:
    """Findings are printed as they come, in the place of the bar, which comes back."""
    for path in sorted(tree.iterdir())[2::4]:
        data = bytearray(path.read_bytes())
        data[ftpatch("list", "--json", path).json[3]["offset"]] = 0xCC
        path.write_bytes(data)
    shown = on_screen("check", tree, script=SLOW_FILES, columns=250)
    assert shown.lines == ftpatch_process("check", tree).out.splitlines()
    after = [frame for frame in shown.frames if len(frame.lines) > 1 and ANY.match(frame.lines[-1])]
    assert after, "the bar is below what was found"


def test_a_file_gets_all_of_it(tree: Path, tmp_path: Path) -> None:
    """The bar is on standard error: what goes to a file goes there."""
    with (tmp_path / "out").open("wb") as out:
        shown = on_screen("status", "--json", tree, script=SLOW_FILES, out=out)
    rows = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert len(rows) == FILES and shown.lines == []
    assert len({line for _, line in _progress(shown)}) > 3


def test_not_where_nobody_would_see_it(tree: Path, tmp_path: Path) -> None:
    piped = patched_process(SLOW_FILES, "status", tree)
    assert piped.err == "" and piped.out == ftpatch("status", tree).out
    with (tmp_path / "err").open("wb") as err:
        shown = on_screen("status", tree, script=SLOW_FILES, err=err)
    assert (tmp_path / "err").read_bytes() == b"" and _progress(shown) == []
    dumb = on_screen("status", tree, script=SLOW_FILES, environment={"TERM": "dumb"})
    assert b"\x1b" not in dumb.raw and _progress(dumb) == []


def test_no_color_keeps_the_bar(tree: Path) -> None:
    shown = on_screen("status", tree, script=SLOW_FILES, environment={"NO_COLOR": "1"})
    assert _progress(shown) and not re.search(rb"\x1b\[[0-9;]*m", shown.raw)


def test_nothing_is_left_of_an_interrupted_one(tree: Path) -> None:
    shown = on_screen("status", tree, script=SLOW_FILES, interrupt=" images ")
    assert shown.code == 130 and _progress(shown)
    assert shown.lines == ["ftpatch: interrupted"], "it writes nothing, so there is nothing to say"


def test_a_fast_command_shows_none() -> None:
    shown = on_screen("status", sample("pad").path)
    late = max(frame.seconds for frame in shown.frames)
    assert late > 1.0 or b"\x1b[K" not in shown.raw
