# SPDX-License-Identifier: MIT
"""Trace files: where they are made, how they grow, and what is said."""

from __future__ import annotations

import os
import re
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import ftpatch_process
from tests.support.trace_file_programs import build, entries, lost, native, run, with_tracer

pytestmark = native


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("program"))


@pytest.fixture(scope="module")
def traced(program: Path) -> Path:
    return with_tracer(program)


def test_a_program_that_rewrites_its_title(traced: Path, tmp_path: Path) -> None:
    """And goes to another folder: its children's files are beside its own."""
    result = run(traced, "title", cwd=tmp_path, FTPATCH_TRACE="trace")
    assert result.returncode == 0 and not result.stderr
    children = sorted(tmp_path.glob("trace.*"))
    assert len(children) == 2 and [entries(file) for file in children] == [3, 3]
    assert entries(tmp_path / "trace") == 1 and len(list(tmp_path.iterdir())) == 3


def test_a_title_without_a_name_of_a_trace(traced: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "FTPATCH_TRACE"}
    subprocess.run([traced, "title"], cwd=tmp_path, env=environment, check=True)
    assert sorted(map(entries, tmp_path.glob("ftpatch.*.trace"))) == [1, 3, 3]


def test_a_title_under_trace(program: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    result = ftpatch_process("trace", "-f", "work", "-o", kept, program, "title", cwd=tmp_path)
    assert result.code == 0 and sorted(map(entries, tmp_path.glob("kept*"))) == [1, 3, 3]
    assert all(file.stat().st_size < 1 << 20 for file in tmp_path.iterdir())


@pytest.mark.parametrize("where", ["", "/dev/null"])
def test_off(where: str, traced: Path, tmp_path: Path) -> None:
    result = run(traced, "fork", "2", "1", cwd=tmp_path, FTPATCH_TRACE=where)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert not list(tmp_path.iterdir()) and not list(Path("/dev").glob("null.*"))


@pytest.mark.parametrize("where", ["/dev/full", "pipe", "folder", "link"])
def test_no_regular_file(where: str, traced: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/dev/full")
    before = set(tmp_path.iterdir())
    result = run(traced, "fork", "2", "1", cwd=tmp_path, FTPATCH_TRACE=where)
    assert result.returncode == 0
    told = f"ftpatch: FTPATCH_TRACE={where}: not a regular file; nothing is recorded\n"
    assert result.stderr == told
    assert set(tmp_path.iterdir()) == before and not list(Path("/dev").glob("full.*"))


def test_nobody_reads_what_is_said(traced: Path) -> None:
    ends = os.pipe()
    os.close(ends[0])
    subprocess.run(
        [traced, "calls", "1"],
        env={**os.environ, "FTPATCH_TRACE": "/dev/full"},
        stderr=ends[1],
        check=True,
        restore_signals=True,
    )
    os.close(ends[1])


def test_what_is_said_has_no_room(traced: Path, tmp_path: Path) -> None:
    """A file of standard error is at its limit: that is a signal, too."""
    with (tmp_path / "said").open("wb") as said:
        subprocess.run(
            [traced, "calls", "1"],
            env={**os.environ, "FTPATCH_TRACE": str(tmp_path / "trace")},
            stderr=said,
            check=True,
            restore_signals=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        )
    assert {path.name for path in tmp_path.iterdir()} == {"said"}


# How large


@pytest.mark.parametrize("size", ["0", "4k", "many", "64Mx", "-1", "99999999999999999G"])
def test_a_size_that_is_none(size: str, traced: Path, tmp_path: Path) -> None:
    names = {"FTPATCH_TRACE": "trace", "FTPATCH_TRACE_SIZE": size}
    result = run(traced, "calls", "1", cwd=tmp_path, **names)
    assert result.returncode == 0
    assert result.stderr == (
        f"ftpatch: FTPATCH_TRACE_SIZE={size}: not a size of 64K or more (such as 64M); "
        "using the program's default\n"
    )
    assert (tmp_path / "trace").stat().st_size == 64 << 20


@pytest.mark.parametrize(("size", "bytes_"), [("64k", 64 << 10), ("1M", 1 << 20), ("", 64 << 20)])
def test_a_size(size: str, bytes_: int, traced: Path, tmp_path: Path) -> None:
    names = {"FTPATCH_TRACE": "trace", "FTPATCH_TRACE_SIZE": size}
    result = run(traced, "calls", "1", cwd=tmp_path, **names)
    assert not result.stderr and (tmp_path / "trace").stat().st_size == bytes_


@pytest.mark.parametrize("size", ["0", "4k", "many", "-1"])
def test_a_size_for_trace(size: str, program: Path) -> None:
    result = ftpatch_process("trace", f"--size={size}", program, "calls", "1")
    assert result.code == 125 and result.err.count("\n") == 1 and repr(size)[1:-1] in result.err


def _disk(*files: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in files)


@pytest.mark.parametrize("of", ["traced", "sandboxed"])
def test_many_children_take_little_room(
    of: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """A thousand of one call each, less than 100 MB; of one that may come to forbid the system call
    by which a file grows, besides its own whole file."""
    traced, room = request.getfixturevalue(of), tmp_path / "room"
    room.mkdir()
    names = {"FTPATCH_TRACE": "trace", "FTPATCH_TRACE_SIZE": "64M"}
    result = run(traced, "fork", "1000", "1", cwd=room, **names)
    assert result.returncode == 0
    children = sorted(room.glob("trace.*"))
    assert len(children) == 1000 and _disk(*children) < 100 << 20
    assert sum(entries(file) for file in children[::500]) == 2
    assert _disk(room / "trace") < 1 << 20 or of == "sandboxed"


def test_a_file_grows(traced: Path, tmp_path: Path) -> None:
    names = {"FTPATCH_TRACE": "trace", "FTPATCH_TRACE_SIZE": "8M"}
    result = run(traced, "calls", "60000", cwd=tmp_path, **names)
    file = tmp_path / "trace"
    assert result.returncode == 0 and (entries(file), lost(file)) == (60000, 0)
    assert 60000 * 16 < _disk(file) < 60000 * 16 + (2 << 20) < file.stat().st_size


@pytest.fixture(scope="module")
def sandboxed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_tracer(build(tmp_path_factory.mktemp("sandboxed"), "-DMAY_BE_SANDBOXED"))


def test_system_calls_that_are_given_up(sandboxed: Path, tmp_path: Path) -> None:
    """Such a program's file needs none to grow, a child's neither."""
    done = run(sandboxed, "sandbox", "50000", cwd=tmp_path, FTPATCH_TRACE="trace")
    assert done.returncode == 5 and entries(tmp_path / "trace") == 50000


def test_small_files_of_children_overflow(sandboxed: Path, tmp_path: Path) -> None:
    """Where files do not grow: what a child's has no room for is in its parent's."""
    traced, room = sandboxed, tmp_path / "room"
    room.mkdir()
    assert run(traced, "fork", "3", "9000", cwd=room, FTPATCH_TRACE="trace").returncode == 0
    files = sorted(room.iterdir())
    assert len(files) == 4 and (entries(*files), lost(*files)) == (27000, 0)
    said = ftpatch_process("report", room / "trace", "--format", "folded").err
    assert re.search(r"forked children recorded in this file .*: 3 \(their own files were", said), (
        said
    )
    profile = ftpatch_process("report", *files, "--format", "profile").out
    assert re.search(r"^ *27000 .* work$", profile, re.MULTILINE), profile


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=777", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs to mount a small disk")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_disk_that_is_full(small_disk: Path, traced: Path) -> None:
    """No call is forgotten by all: it is recorded, or counted in some file."""
    result = run(traced, "fork", "40", "1500", cwd=small_disk, FTPATCH_TRACE="trace")
    assert result.returncode == 0 and not result.stderr
    files = sorted(small_disk.iterdir())
    assert 1 < len(files) < 41 and entries(*files) + lost(*files) == 40 * 1500
    said = ftpatch_process("report", small_disk / "trace", "--format", "folded").err
    assert re.search(r"forked children recorded in this file .*: \d+ \(No space left", said), said
    assert re.search(r"\d+ events lost when the disk was full\n", said), said


def test_a_full_disk_from_the_start(small_disk: Path, traced: Path) -> None:
    (small_disk / "filler").write_bytes(bytes((1 << 20) - 8192))
    result = run(traced, "fork", "2", "1", cwd=small_disk, FTPATCH_TRACE="trace")
    assert result.returncode == 0 and [p.name for p in small_disk.iterdir()] == ["filler"]
    told = "cannot create the trace file (errno 28); nothing is recorded"
    assert result.stderr == f"ftpatch: FTPATCH_TRACE=trace: {told}\n"


@pytest.mark.parametrize("limit", [20000, 50000, 200000])
def test_little_address_space(limit: int, traced: Path, tmp_path: Path) -> None:
    words = ["bash", "-c", f"ulimit -v {limit}; exec {traced} fork 2 100"]
    environment = {**os.environ, "FTPATCH_TRACE": "trace"}
    subprocess.run(words, cwd=tmp_path, env=environment, check=True)
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3 and entries(*files) == 200


def test_no_address_space(traced: Path, tmp_path: Path) -> None:
    """The program runs on, and it is said if nothing is recorded. Its own code has to find room."""
    for limit in range(2400, 5000, 200):
        words = ["bash", "-c", f"ulimit -v {limit}; exec {traced} calls 100"]
        plain = [
            "bash",
            "-c",
            f"ulimit -v {limit - 200}; exec {traced.with_name('prog')} calls 100",
        ]
        env = {**os.environ, "FTPATCH_TRACE": f"{limit}.trace"}
        done = subprocess.run(words, cwd=tmp_path, env=env, check=False, capture_output=True)
        if subprocess.run(plain, cwd=tmp_path, check=False, capture_output=True).returncode == 0:
            file = tmp_path / f"{limit}.trace"
            assert done.returncode == 0
            assert file.exists() or b"nothing is recorded" in done.stderr
