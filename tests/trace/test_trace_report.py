# SPDX-License-Identifier: MIT
"""The verb: several files, filters, where the output goes."""

from __future__ import annotations

import os
import pty
import re
import stat
import subprocess
from pathlib import Path

import pytest

from tests.support.command import child_env, ftpatch, ftpatch_command, ftpatch_process
from tests.support.trace_writer import BASE, ENTRY, EXIT, Thread, TraceFile, program
from tests.trace.test_trace_damage import FORMATS


def _trace(folder: Path, **header: int | bytes) -> Path:
    thread = Thread(100, per=2).add(ENTRY, "main", 0).add(ENTRY, "parse", 1000)
    thread.add(ENTRY, "walk", 2000).add(EXIT, "walk", 2500).add(EXIT, "parse", 3000)
    thread.add(ENTRY, "hash", 4000).add(EXIT, "hash", 4100).add(EXIT, "main", 9000)
    own: dict[str, int | bytes] = {"path": bytes(program(folder / "prog"))}
    return TraceFile([thread], header=own | header).write(folder / "trace")


def _child(folder: Path, **header: int | bytes) -> Path:
    thread = Thread(200).add(ENTRY, "walk", 2100).add(EXIT, "walk", 2200)
    own: dict[str, int | bytes] = {"pid": 200, "ppid": 100, "path": bytes(folder / "prog")}
    return TraceFile([thread], header=own | header).write(folder / "child")


def _calls(text: str) -> list[str]:
    """Who and what, of lines that begin a call."""
    rows = (re.fullmatch(r" *(\S+)\) .*\|  (.*?)(;| \{)", line) for line in text.splitlines())
    return [f"{row[1]} {row[2].strip()}" for row in rows if row]


def test_children_are_merged_by_time(tmp_path: Path) -> None:
    both = [_trace(tmp_path), _child(tmp_path)]
    out = ftpatch("report", *both).out
    assert "# PID/TID    DURATION " in out
    assert _calls(out) == [
        "100/100 main()",
        "100/100 parse()",
        "100/100 walk()",
        "200/200 walk()",
        "100/100 hash()",
    ]
    assert [r["pid"] for r in ftpatch("report", "--json", *both).json][3:5] == [200, 200]
    profile = ftpatch("report", "--format", "profile", *both).out.splitlines()
    walks = [line.split() for line in profile if line.endswith("walk") or line.startswith("# p")]
    assert walks == [
        ["2", "0.600", "us", "0.300", "us", "0.600", "us", "walk"],
        ["#", "prog-100"],
        ["1", "0.500", "us", "0.500", "us", "0.500", "us", "walk"],
        ["#", "prog-200"],
        ["1", "0.100", "us", "0.100", "us", "0.100", "us", "walk"],
    ]
    assert "# 2 processes: prog-100, prog-200\n" in out
    folded = ftpatch("report", "--format", "folded", *both).out
    assert "prog-100;main;parse;walk 500\n" in folded and "prog-200;walk 100\n" in folded
    function = ftpatch("report", "--format", "function", *both).out
    assert "            prog-200     (    200)     0.000002: walk\n" in function


@pytest.mark.parametrize("far", [0, 5_000_000_000])
def test_clocks_that_differ_are_brought_together(tmp_path: Path, far: int) -> None:
    """The child's counter is another one, or it says that it began at another time of day."""
    other = {"ticks": 1 << 50, "realtime": far + 10_000_000_000}
    child = _child(tmp_path, **other)
    raw = bytearray(child.read_bytes())
    raw[4096 + 8 : 4096 + 16] = ((1 << 50) + 2100).to_bytes(8, "little")
    child.write_bytes(raw)
    trace = _trace(tmp_path, realtime=10_000_000_000, ticks=0)
    rows = ftpatch("report", "--json", trace, child).json
    assert [row["time"] for row in rows if row["pid"] == 200] == [far + 2100, far + 2200]


def test_files_of_two_kinds_are_no_report(tmp_path: Path) -> None:
    profile = TraceFile(profiles=[[(6, 1, 1, 1)]]).write(tmp_path / "profile")
    result = ftpatch("report", _trace(tmp_path), profile)
    assert result.code == 2 and "a profile cannot be reported together" in result.err


@pytest.mark.parametrize(
    ("arguments", "calls"),
    [
        (["-f", "walk"], ["walk()"]),
        (["-f", "walk", "-f", "ha??"], ["walk()", "hash()"]),
        (["-f", "!main", "-f", "!p*"], ["walk()", "hash()"]),
        (["-D", "1"], ["main()"]),
        (["-D", "2"], ["main()", "parse()", "hash()"]),
        (["-D", "1", "-f", "!main"], ["parse()", "hash()"]),
        (["--time", "0.000002-"], ["walk()", "hash()"]),
        (["--time", "-0.0000015"], ["main()", "parse()"]),
        (["--tid", "100", "--time", "0.0000039-0.0000045"], ["hash()"]),
    ],
)
def test_filters(tmp_path: Path, arguments: list[str], calls: list[str]) -> None:
    result = ftpatch("report", _trace(tmp_path), *arguments)
    assert [call.split()[1] for call in _calls(result.out)] == calls


def test_a_part_of_the_time_counts_that_part(tmp_path: Path) -> None:
    trace = _trace(tmp_path)
    out = ftpatch("report", trace, "--format", "profile", "--time", "0.0000022-0.00000405").out
    rows = [line.split() for line in out.splitlines()[2:]]
    assert [(row[0], row[1], row[5], row[7]) for row in rows] == [
        ("0", "1.850", "1.000", "main"),
        ("0", "0.800", "0.500", "parse"),
        ("0", "0.300", "0.300", "walk"),
        ("1", "0.050", "0.050", "hash"),
    ]
    shallow = ftpatch("report", trace, "--format", "folded", "-D", "2", "-f", "!parse").out
    assert shallow == "main 8400\nmain;hash 100\nmain;walk 500\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--time", "1"], "not FROM-TO"),
        (["--time", "-"], "not FROM-TO"),
        (["--time", "a-b"], "not FROM-TO"),
        (["--time", "2-1"], "ends before it begins"),
        (["--time", "1e400-"], "not FROM-TO"),
        (["--tid", "7"], "no thread 7"),
        (["--max-depth", "0"], "--max-depth"),
        (["-f", "nothing"], "matches no function"),
        (["--format", "xml"], "unknown format"),
        (["--json", "--format", "chrome"], "conflict"),
        (["-o", "missing/out"], "cannot write"),
        (["-o", "."], "the output is a directory"),
    ],
)
def test_what_cannot_be_done_is_one_line(tmp_path: Path, arguments: list[str], words: str) -> None:
    result = ftpatch("report", _trace(tmp_path), *arguments)
    assert result.code == 2 and words in result.err
    assert re.fullmatch(r"ftpatch: [^\n]+\n", result.err)


def test_the_output_appears_when_it_is_whole(tmp_path: Path) -> None:
    trace, out = _trace(tmp_path), tmp_path / "out"
    before = {path.name for path in tmp_path.iterdir()}
    assert ftpatch("report", trace, "-o", out, "-f", "nothing").code == 2
    assert {path.name for path in tmp_path.iterdir()} == before
    assert ftpatch("report", trace, "-o", out) == ftpatch("report", trace, "-o", out, "--force")
    assert out.read_text() == ftpatch("report", trace).out
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(out.stat().st_mode) == 0o666 & ~mask
    again = ftpatch("report", trace, "-o", out)
    assert again.code == 2 and "the output exists" in again.err
    link = tmp_path / "link"
    link.symlink_to(out)
    assert "is a symbolic link" in ftpatch("report", trace, "-o", link, "--force").err
    assert {path.name for path in tmp_path.iterdir()} == before | {"out", "link"}


def test_bytes_are_not_for_a_terminal(tmp_path: Path) -> None:
    parent, child = pty.openpty()
    command = ftpatch_command("report", "--format", "perfetto")
    command.append(str(_trace(tmp_path)))
    environment = child_env()
    pipe = subprocess.PIPE
    done = subprocess.run(command, env=environment, stdout=child, stderr=pipe, check=False)
    os.close(child)
    os.close(parent)
    assert done.returncode == 2 and b"cannot be written to a terminal; use -o FILE" in done.stderr
    out = tmp_path / "piped"
    with out.open("wb") as file:
        subprocess.run(command, env=environment, stdout=file, check=True)
    assert out.read_bytes()[:1] == b"\n"


def test_names_do_not_reach_a_terminal_as_they_are(tmp_path: Path) -> None:
    names = ("a\x1b[31mb", "two\nlines", *("rest" + c for c in "abcdef"))
    thread = Thread(1).add(ENTRY, "main", 0).add(ENTRY, "parse", 1).add(EXIT, "parse", 2)
    header = {"path": bytes(program(tmp_path / "prog", names)), "comm": b"\x1bc\xff"}
    trace = TraceFile([thread], header=header).write(tmp_path / "trace")  # type: ignore[arg-type]
    for form in FORMATS:
        out = ftpatch("report", "--format", form, trace).out
        assert "\x1b" not in out and "two\nlines" not in out


def test_another_process_says_the_same(tmp_path: Path) -> None:
    trace = _trace(tmp_path)
    result = ftpatch_process("report", trace)
    assert result == ftpatch("report", trace)
    assert hex(BASE) not in result.out


def test_a_disk_that_is_full_at_the_end(tmp_path: Path) -> None:
    """Nothing stays of a report that was written into a buffer, and its file is what is named."""
    trace, out = _trace(tmp_path), tmp_path / "out"
    before = {path.name for path in tmp_path.iterdir()}
    command = ftpatch_command("report", str(trace), "-o", str(out))
    done = subprocess.run(
        ["sh", "-c", 'ulimit -f 0; "$@" 2>&1 | cat', "", *command],
        env=child_env(),
        capture_output=True,
        text=True,
        check=False,
    )
    said = "cannot write: File too large; raise the limit of file sizes (`ulimit -f`)"
    assert done.stdout == f"ftpatch: {out}: {said}\n"
    assert {path.name for path in tmp_path.iterdir()} == before
