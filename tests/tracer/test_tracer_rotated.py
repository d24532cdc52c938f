# SPDX-License-Identifier: MIT
"""Files that are rotated: what is in all of them and what was counted when files were removed is
what the program did, by its own log."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ftpatch.process.process import find_process
from ftpatch.process.recording import record
from tests.support.command import PATIENCE, ftpatch
from tests.support.follower import following
from tests.support.padded import padded
from tests.support.running import running
from tests.support.sampling import scaled
from tests.support.stopping import has_opened, until
from tests.support.trace_events import are_latest
from tests.support.tracer_ports import FORMS, Form, build, run_with

SOURCE = (Path(__file__).parent.parent / "programs" / "ring.c").read_text()
PINNED = 2
"""Files that may be there for a moment longer, since threads are still storing to them."""
Events = list[dict[str, Any]]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program, with pads, that writes down its calls."""
    return padded(tmp_path_factory.mktemp("rotated"), SOURCE, "-pthread", "-w")


def _traced(program: Path, folder: Path, tracer: str, size: str, *words: str) -> Path:
    traced = folder / "patched"
    options: list[str | Path] = [
        "--tracer",
        tracer,
        "--size",
        size,
        *words,
        "--force",
        "-o",
        traced,
    ]
    assert ftpatch("enable", program, *options).code == 0
    return traced


def _run(traced: Path, folder: Path, *words: object, **env: str) -> str:
    """Run the program; its log."""
    log = folder / "log"
    threads, calls, *more = map(str, words)
    environment = {**os.environ, "FTPATCH_TRACE": str(folder / "trace"), **env}
    command: list[str | Path] = [traced, threads, calls, log, *more]
    done = subprocess.run(
        command, env=environment, check=True, timeout=PATIENCE, capture_output=True, text=True
    )
    assert not done.stderr
    return log.read_text()


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("trace*"), key=lambda path: [*map(_number, path.suffixes)])


def _number(suffix: str) -> int:
    return int(suffix.lstrip(".r"))


def _events(*files: Path, alone: bool = False) -> Events:
    said = ftpatch("report", *files, "--json", *(("--no-children",) if alone else ()))
    assert said.code == 0, said.err
    for damage in ("corrupt", "without a valid last event", "truncated"):
        assert damage not in said.err, said.err
    return list(map(json.loads, said.out.splitlines()))


def _calls(events: Events) -> dict[int, str]:
    """The logged functions that each thread called, in order."""
    calls: dict[int, str] = defaultdict(str)
    for one in events:
        if one.get("event") == "entry" and one["function"] != "handled":
            calls[one["tid"]] += one["function"][1]
    return calls


def _counted(events: Events) -> tuple[int, int, int]:
    """How many events there are, how many were removed, and how many lost."""
    shown = sum("event" in one for one in events)
    losses = [one for one in events if "overwritten" in one]
    lost = sum(sum(one["lost"].values()) for one in losses)
    return shown, sum(one["overwritten"] for one in losses), lost


@pytest.mark.parametrize("tracer", ["function", "function_graph"])
@pytest.mark.parametrize(
    ("threads", "size", "keep"), [(1, "64K", 1), (4, "64K", 3), (40, "512K", 1)]
)
def test_what_is_kept_and_what_was_removed(
    program: Path, tmp_path: Path, tracer: str, threads: int, size: str, keep: int
) -> None:
    """The latest calls of each thread are there, and all others were counted."""
    calls = scaled(400_000, 200_000) // threads
    traced = _traced(program, tmp_path, tracer, size, "-f", "f?", "--rotate", str(keep))
    log = _run(traced, tmp_path, threads, calls)
    files = _files(tmp_path)
    assert keep < len(files) <= keep + 1 + PINNED and tmp_path / "trace" not in files
    events = _events(files[0])
    assert are_latest(_calls(events), log) == threads * calls
    shown, gone, lost = _counted(events)
    each = 1 if tracer == "function" else 2
    assert (shown + gone, lost) == (each * threads * calls, 0)
    assert gone > 0 and shown > 0


@pytest.fixture(scope="module")
def whole(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """All files of a run."""
    folder = tmp_path_factory.mktemp("whole")
    words = ("-f", "f?", "-f", "handled", "--rotate", "999")
    traced = _traced(program, folder, "function_graph", "128K", *words)
    yield folder, _run(traced, folder, 5, 20_000)


def test_all_files_are_one_recording(whole: tuple[Path, str]) -> None:
    """Named one by one, or by one of them; of no thread is anything missing or out of order."""
    folder, log = whole
    files = _files(folder)
    assert len(files) > 10 and files[0].name == "trace" and files[5].name == "trace.r5"
    by_one, by_all = _events(files[3]), _events(*files)
    assert by_one == by_all and _counted(by_one) == (200_000, 0, 0)
    for line in log.splitlines():
        tid, _, made = line.split()
        assert _calls(by_one)[int(tid)] == made
    last: dict[int, int] = {}
    for one in by_one:
        assert one["time"] >= last.get(one["tid"], 0)
        last[one["tid"]] = one["time"]
    assert len(last) == 5


def test_calls_that_are_made_at_a_change(whole: tuple[Path, str]) -> None:
    """They have one entry, one return and a time, as others have: sums are those of the calls."""
    folder, log = whole
    said = ftpatch("report", folder / "trace", "--format", "profile")
    rows = [line.split() for line in said.out.splitlines() if re.search(r" f\d$", line)]
    sums = {row[-1]: int(row[0]) for row in rows}
    made = Counter(digit for line in log.splitlines() for digit in line.split()[2])
    assert sums == {f"f{digit}": count for digit, count in made.items()}
    said = ftpatch("report", folder / "trace")
    assert "processes" not in said.out and said.out.count(" {") == said.out.count("} /*")


def test_each_file_is_readable_alone(whole: tuple[Path, str]) -> None:
    folder, _ = whole
    sums = [_counted(_events(file, alone=True)) for file in _files(folder)]
    assert sum(shown for shown, _, _ in sums) == 200_000
    assert all(shown > 1000 for shown, _, _ in sums[:-1])
    said = ftpatch("report", folder / "trace.r3", "--no-children")
    assert "exit()" not in said.out + said.err


def test_handlers_call_in_between(program: Path, tmp_path: Path) -> None:
    words = ("-f", "f?", "-f", "handled", "--rotate", "4")
    traced = _traced(program, tmp_path, "function_graph", "128K", *words)
    log = _run(traced, tmp_path, 8, scaled(100_000, 30_000), "signals")
    events = _events(_files(tmp_path)[0])
    assert are_latest(_calls(events), log)
    assert any(one.get("function") == "handled" for one in events)


IDLE = r"""
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
void leaf(void) { __asm__ volatile("" ::: "memory"); }
void rare(void) { __asm__ volatile("" ::: "memory"); }
__attribute__((patchable_function_entry(0))) static void *run(void *count)
{
	for (long i = (long)count; i; i--)
		leaf();
	return 0;
}
__attribute__((patchable_function_entry(0))) int main(int argc, char **argv)
{
	pthread_t id[4];
	long count = atol(argv[1]);

	for (int i = 0; i < 10; i++)
		rare();
	for (int i = 0; i < 4; i++)
		pthread_create(&id[i], 0, run, (void *)count);
	for (int i = 0; i < atoi(argv[2]); i++) {
		if (!fork()) {
			rare();
			run((void *)count);
			_exit(0);
		}
		usleep(1000);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(id[i], 0);
	for (int i = 0; i < 10; i++)
		rare();
	while (wait(0) > 0)
		;
	return 0;
}
"""


def test_a_thread_that_waits_for_long(tmp_path: Path) -> None:
    """Its chunk is in a file that was removed: it goes on in the one that is written."""
    program = padded(tmp_path, IDLE, "-fno-inline", "-pthread")
    traced = _traced(program, tmp_path, "function", "64K", "--rotate", "1")
    count = scaled(200_000, 50_000)
    env = {**os.environ, "FTPATCH_TRACE": str(tmp_path / "trace")}
    subprocess.run([traced, str(count), "0"], env=env, check=True, timeout=PATIENCE)
    events = _events(_files(tmp_path)[0])
    shown, gone, lost = _counted(events)
    assert (shown + gone, lost) == (4 * count + 20, 0)
    assert [one.get("function") for one in events].count("rare") == 10


def test_children_rotate_their_own(tmp_path: Path) -> None:
    """Forked at any moment of their parent, whose threads go on."""
    program = padded(tmp_path, IDLE, "-fno-inline", "-pthread")
    traced = _traced(program, tmp_path, "function_graph", "64K", "--rotate", "2")
    count, children = 30_000, scaled(20, 6)
    env = {**os.environ, "FTPATCH_TRACE": str(tmp_path / "trace")}
    subprocess.run([traced, str(count), str(children)], env=env, check=True, timeout=PATIENCE)
    own = [file for file in tmp_path.glob("trace*") if re.fullmatch(r"trace(\.r\d+)?", file.name)]
    sums = Counter[int]()
    for one in _events(own[0]):
        if "event" in one:
            sums[one["pid"]] += 1
        elif "overwritten" in one:
            sums[one["pid"]] += one["overwritten"] + sum(one["lost"].values())
    assert sorted(sums.values()) == [2 * (count + 1)] * children + [2 * (4 * count + 20)]
    assert len(list(tmp_path.glob("trace*"))) <= (children + 1) * (3 + PINNED)


def test_killed_at_any_moment(program: Path, tmp_path: Path) -> None:
    """All files are readable, alone and together, and no thread has a gap."""
    traced = _traced(program, tmp_path, "function_graph", "64K", "-f", "f?", "--rotate", "3")
    environment = {**os.environ, "FTPATCH_TRACE": str(tmp_path / "trace")}
    command: list[str | Path] = [traced, "4", "1000000000", tmp_path / "none"]
    for number in range(scaled(12, 4)):
        for file in _files(tmp_path):
            file.unlink()
        with subprocess.Popen(command, env=environment) as process:
            until(lambda: _latest(tmp_path) > 9, PATIENCE)
            time.sleep(number * 0.003)
            process.send_signal(signal.SIGKILL)
        files = [file for file in _files(tmp_path) if file.read_bytes()[:8] == b"FTPTRACE"]
        # One may just have been made, and have no header yet.
        assert 3 <= len(files) <= len(_files(tmp_path)) <= min(len(files) + 1, 4 + PINNED)
        whole = _counted(_events(*files))
        assert whole[0] == sum(_counted(_events(file, alone=True))[0] for file in files) > 0
        assert whole[1] > 0 == whole[2]


def _is_past(folder: Path, number: int) -> bool:
    return _latest(folder) > number


def test_memory_of_full_files_is_given_back(program: Path, tmp_path: Path) -> None:
    traced = _traced(program, tmp_path, "function", "1M", "-f", "f?", "--rotate", "1")
    environment = {**os.environ, "FTPATCH_TRACE": str(tmp_path / "trace")}
    command: list[str | Path] = [traced, "2", "1000000000", tmp_path / "none"]
    with subprocess.Popen(command, env=environment) as process:
        try:
            sizes = []
            for number in (9, 40):
                until(partial(_is_past, tmp_path, number), PATIENCE)
                place = Path("/proc", str(process.pid))
                mapped = re.findall(rf"{tmp_path}/trace\S*", (place / "maps").read_text())
                assert len(set(mapped)) <= 2 + PINNED, mapped
                sizes.append(int(re.findall(r"VmSize:\s+(\d+)", (place / "status").read_text())[0]))
            assert sizes[1] - sizes[0] <= 2048
        finally:
            process.kill()


def _latest(folder: Path) -> int:
    return max((_number(file.suffix or ".r0") for file in _files(folder)), default=0)


def test_a_disk_that_is_full(program: Path, tmp_path: Path) -> None:
    """There are as many files as it has room for, and what there is none for is counted."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=777", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs to mount a small disk")
    try:
        traced = _traced(program, tmp_path, "function", "128K", "-f", "f?", "--rotate", "50")
        env = {"FTPATCH_TRACE": str(place / "trace")}
        log = _run(traced, tmp_path, 3, 100_000, **env)
        events = _events(_files(place)[0])
        shown, gone, lost = _counted(events)
        assert shown + gone + lost == 300_000 and gone and 5 <= len(_files(place)) <= 9
        if not lost:
            assert are_latest(_calls(events), log) == 300_000
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_names_that_exist(program: Path, tmp_path: Path) -> None:
    """They are not written to, nor removed."""
    for name in ("trace.r1", "trace.r2", "trace.r5"):
        (tmp_path / name).write_text("mine")
    traced = _traced(program, tmp_path, "function", "64K", "-f", "f?", "--rotate", "2")
    _run(traced, tmp_path, 1, 30_000)
    own = [file for file in _files(tmp_path) if file.read_bytes() != b"mine"]
    assert len(_files(tmp_path)) == len(own) + 3 and len(own) == 3
    shown, gone, _ = _counted(_events(*own))
    assert shown + gone == 30_000


def test_the_folder_becomes_unwritable(program: Path, tmp_path: Path) -> None:
    """There is no file to go on in: what is lost is counted, and the program goes on."""
    folder = tmp_path / "folder"
    folder.mkdir()
    traced = _traced(program, tmp_path, "function", "64K", "-f", "f?", "--rotate", "2")
    env = {"FTPATCH_TRACE": str(folder / "trace"), "FTPATCH_TRACE_SIZE": "64K"}
    command: list[str | Path] = [traced, "2", "100000", tmp_path / "log", "100"]
    with running(*map(str, command), **env) as process:
        assert process.stdin is not None and (folder / "trace").exists()
        folder.rename(tmp_path / "moved")
        process.stdin.write(b"\n")
        process.stdin.flush()
        until(lambda: (tmp_path / "log").exists() and process.poll() is not None, PATIENCE)
    (file,) = _files(tmp_path / "moved")
    shown, gone, lost = _counted(_events(file))
    assert (shown + lost, gone) == (200_000, 0) and lost > 100_000


@pytest.mark.parametrize("tracer", ["function_graph", "function"])
def test_followed(program: Path, tmp_path: Path, tracer: str) -> None:
    """From one file into the next, till the end: all is told, in order."""
    traced = _traced(program, tmp_path, tracer, "64K", "-f", "f?", "--rotate", "50")
    trace, log = tmp_path / "trace", tmp_path / "log"
    command: list[str | Path] = [traced, "3", "15000", log, "20000"]
    with (
        running(*map(str, command), FTPATCH_TRACE=str(trace)) as process,
        following(trace, "--json") as seen,
    ):
        assert process.stdin is not None
        until(lambda: has_opened(seen.process.pid, trace), PATIENCE)
        process.stdin.write(b"\n")
        process.stdin.flush()
        done = seen.end()
    assert done.code == 0 and "corrupt" not in done.err, done.err
    events = list(map(json.loads, done.out.splitlines()))
    for line in log.read_text().splitlines():
        tid, _, made = line.split()
        assert _calls(events)[int(tid)] == made
    assert len(_files(tmp_path)) > 5


def _functions(program: Path) -> list[str]:
    done = subprocess.run(["readelf", "-sW", program], capture_output=True, text=True, check=True)
    return [line.split()[-1] for line in done.stdout.splitlines() if " FUNC " in line]


@pytest.mark.parametrize("form", [form for form in FORMS if form.level == "-O2"], ids=str)
def test_on_other_processors(form: Form, tmp_path: Path) -> None:
    program = build(form, "ring.c", tmp_path)
    traced = _traced(program, tmp_path, "function", "64K", "-f", "f?", "--rotate", "2")
    log = tmp_path / "log"
    words, trace = ("4", "20000", str(log)), str(tmp_path / "trace")
    done = run_with(form, traced, words, FTPATCH_TRACE=trace)
    if "prctl" in _functions(program):  # it may forbid what beginning a file takes
        assert "may forbid system calls: its trace is not rotated" in done.stderr
        assert done.stderr.count("\n") == 1 and _files(tmp_path) == [tmp_path / "trace"]
        return
    assert done.returncode == 0 and not done.stderr
    events = _events(_files(tmp_path)[0])
    assert are_latest(_calls(events), log.read_text()) == 80_000
    shown, gone, lost = _counted(events)
    assert (shown + gone, lost) == (80_000, 0) and gone
    assert 3 <= len(_files(tmp_path)) <= 3 + PINNED


def test_the_environment_asks_for_it(program: Path, tmp_path: Path) -> None:
    """And it can say no where the file was made with --rotate; what it cannot mean is told once."""
    for words, env, files, told in [
        ((), {"ROTATE": "2"}, 3, ""),
        (("--rotate", "1"), {}, 2, ""),
        (("--rotate", "1"), {"ROTATE": ""}, 2, ""),
        (("--rotate", "1"), {"ROTATE": "0"}, 1, ""),
        (("--rotate", "1"), {"RING": "1"}, 1, ""),
        (("--ring",), {"ROTATE": "3"}, 1, "FTPATCH_TRACE_ROTATE=3: a ring is not rotated"),
        ((), {"ROTATE": "some"}, 1, "FTPATCH_TRACE_ROTATE=some: not a number of files"),
        (("--rotate", "1"), {"ROTATE": "1000"}, 2, "FTPATCH_TRACE_ROTATE=1000: not a number"),
        ((), {"ROTATE": "-1"}, 1, "FTPATCH_TRACE_ROTATE=-1: not a number"),
    ]:
        folder = tmp_path / "of"
        folder.mkdir()
        traced = _traced(program, tmp_path, "function", "64K", "-f", "f?", *words)
        environment = {**os.environ, "FTPATCH_TRACE": str(folder / "trace")}
        environment |= {f"FTPATCH_TRACE_{name}": word for name, word in env.items()}
        command: list[str | Path] = [traced, "1", "40000", tmp_path / "log"]
        done = subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True, timeout=PATIENCE
        )
        assert told in done.stderr and done.stderr.count("\n") == bool(told)
        assert files <= len(_files(folder)) <= files + PINNED * (files > 1), (words, env)
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


@contextmanager
def _rotating(program: Path, folder: Path) -> Iterator[int]:
    """A process that writes to small files, one after the other."""
    traced = _traced(program, folder, "function", "64K", "-f", "f?", "--rotate", "1")
    command: list[str | Path] = [traced, "1", "1000000000", folder / "none"]
    environment = {**os.environ, "FTPATCH_TRACE": str(folder / "trace")}
    with subprocess.Popen(command, env=environment) as process:
        try:
            until(partial(_is_past, folder, 20), PATIENCE)
            yield process.pid
        finally:
            process.kill()


def test_recording_is_switched_in_a_later_file(program: Path, tmp_path: Path) -> None:
    with _rotating(program, tmp_path) as pid:
        done = ftpatch("disable", "--pid", str(pid), "--recording")
        assert done.code == 0, done.err
        off = _latest(tmp_path)
        time.sleep(0.2)
        assert _latest(tmp_path) <= off + 1
        assert ftpatch("enable", "--pid", str(pid), "--recording").code == 0
        until(lambda: _latest(tmp_path) > off + 20, PATIENCE)


def test_recording_is_switched_while_files_come_and_go(program: Path, tmp_path: Path) -> None:
    """They last some 100 us, and come where others were."""
    with _rotating(program, tmp_path) as pid:
        switched = find_process(pid)
        for _ in range(scaled(200, 20)):
            record(switched, on=False)
            off = _latest(tmp_path)
            time.sleep(0.02)
            assert _latest(tmp_path) <= off + 1
            record(switched, on=True)
            until(partial(_is_past, tmp_path, off + 1), PATIENCE)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--tracer", "function_profile", "--rotate", "3"), "records sums"),
        (("--tracer", "nop", "--rotate", "3"), "the nop tracer records nothing"),
        (("--tracer", "function", "--ring", "--rotate", "3"), "--rotate: a ring is one file"),
        (("--rotate", "3"), "--rotate requires a --tracer of programs"),
        (("--tracer", "function", "--rotate", "1000"), "999"),
    ],
)
def test_it_is_refused(program: Path, tmp_path: Path, words: Sequence[str], said: str) -> None:
    done = ftpatch("enable", program, *words, "-o", tmp_path / "out")
    assert done.code == 2 and said in done.err
    assert not (tmp_path / "out").exists()
