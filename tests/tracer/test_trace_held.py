# SPDX-License-Identifier: MIT
"""Trace files: who may write to them, cut them off, or end while they are written."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.command import (
    PATIENCE,
    child_env,
    ftpatch_command,
    ftpatch_process,
    patched_command,
)
from tests.support.trace_events import read_trace
from tests.support.trace_file_programs import SIZE, build, entries, lost, native, run, with_tracer

pytestmark = native
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BEFORE_GATE = 100
"""Rounds that the program makes before it waits at its gate."""
SERVER = "from ftpatch.tracer import server\n"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("program"))


@pytest.fixture(scope="module")
def traced(program: Path) -> Path:
    return with_tracer(program)


@as_root
def test_privileges_dropped(traced: Path, tmp_path: Path) -> None:
    """A child that may not make its file records in its parent's, which says so."""
    room = tmp_path / "room"
    room.mkdir(mode=0o700)
    assert run(traced, "setuid", "3", "5", cwd=room, FTPATCH_TRACE="trace").returncode == 0
    (file,) = room.iterdir()
    assert (entries(file), lost(file)) == (16, 0) and len(read_trace(file).threads) == 4
    said = ftpatch_process("report", file).out
    assert "forked children recorded in this file instead of their own: 3 (Permi" in said


@as_root
def test_privileges_dropped_under_trace(program: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    tmp_path.chmod(0o711)
    result = ftpatch_process("trace", "-f", "work", "-o", kept, program, "setuid", "3", "5")
    assert result.code == 0 and "recorded here" not in result.out
    assert sorted(map(entries, tmp_path.glob("kept*"))) == [1, 5, 5, 5]
    assert {file.stat().st_uid for file in tmp_path.glob("kept*")} == {os.getuid()}


def test_sockets_are_forbidden_under_trace(tmp_path: Path) -> None:
    """By a filter that ends who asks for one: children make their files by name."""
    program, kept = build(tmp_path, "-DMAY_BE_SANDBOXED"), tmp_path / "kept"
    result = ftpatch_process("trace", "-f", "work", "-o", kept, program, "no-socket", "3", "5")
    assert result.code == 0, result.err
    assert sorted(map(entries, tmp_path.glob("kept*"))) == [0, 5, 5, 5]


@contextlib.contextmanager
def _midway(
    words: Sequence[str | Path], place: Path, **env: str
) -> Iterator[subprocess.Popen[bytes]]:
    """The program, or a command that runs it, when it has made some of its calls. It makes the
    others when this is left; what it prints goes to ``place``/said."""
    gate = place / "gate"
    with (
        (place / "said").open("w") as said,
        subprocess.Popen(words, env=child_env(GATE=str(gate), **env), stdout=said) as running,
    ):
        try:
            _wait(gate.with_suffix(".reached").exists)
            yield running
            gate.with_suffix(".open").touch()
            running.wait(PATIENCE)
        finally:
            running.kill()


def _recording(place: Path) -> dict[str, str]:
    return {"FTPATCH_TRACE": str(place / "trace"), "FTPATCH_TRACE_SIZE": SIZE}


def _wait(met: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not met():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_nobody_else_writes_to_it(traced: Path, tmp_path: Path) -> None:
    """Nor cuts it off: that would end the program by SIGBUS."""
    tmp_path.chmod(0o755)
    with _midway([traced, "slow", "1000", "10"], tmp_path, **_recording(tmp_path)) as running:
        assert (tmp_path / "trace").stat().st_mode & 0o777 == 0o400
        if os.getuid() == 0:
            cut = ["truncate", "-s", "0", "trace"]
            os.chown(tmp_path / "trace", NOBODY, NOBODY)
            done = subprocess.run(cut, cwd=tmp_path, user=NOBODY, capture_output=True, check=False)
        else:
            cut = ["truncate", "-s", "0", "trace"]
            done = subprocess.run(cut, cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == 1 and b"Permission denied" in done.stderr
    assert running.returncode == 0 and entries(tmp_path / "trace") == 10000


@pytest.mark.parametrize("to", [0, 9000])
@pytest.mark.parametrize("words", [("slow", "800", "10"), ("threads", "800", "10")], ids=str)
def test_it_is_cut_off(words: tuple[str, ...], to: int, traced: Path, tmp_path: Path) -> None:
    """By somebody with all rights. The program goes on, and says what it lost."""
    with _midway([traced, *words], tmp_path, **_recording(tmp_path)) as running:
        (tmp_path / "trace").chmod(0o600)
        os.truncate(tmp_path / "trace", to)
    assert running.returncode == 0
    other = tmp_path / f"trace.{running.pid}"
    said = ftpatch_process("report", other).out
    found = re.search(r"truncated while it was being written: up to (\d+) bytes are lost", said)
    calls = 8000 * (1 if words[0] == "slow" else 4)
    assert found and 0 < entries(other) < calls <= entries(other) + int(found[1]) / 16


def test_sigbus_of_the_programs_own(traced: Path, tmp_path: Path) -> None:
    """Is what it was."""
    done = run(traced, "sigbus", cwd=tmp_path, FTPATCH_TRACE="trace")
    assert done.returncode == -signal.SIGBUS
    done = run(traced, "sigbus", "1", cwd=tmp_path, FTPATCH_TRACE="trace")
    assert done.returncode == 9


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "reported"])
def test_it_is_cut_off_under_trace(keep: bool, program: Path, tmp_path: Path) -> None:
    """Whatever there is by the name of a trace, and all that the run has in its folders."""
    words = ["-o", str(tmp_path / "kept")] if keep else []
    words = ["trace", "-f", "work", "--format", "profile", *words, str(program)]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    words = ftpatch_command(*words, "slow", "2000", "10")
    with _midway(words, tmp_path, TMPDIR=str(temporary)) as running:
        for file in [*tmp_path.glob("kept*"), *temporary.rglob("*")]:
            if file.is_file():
                os.truncate(file, 0)
    out = (tmp_path / "said").read_text()
    assert running.returncode == 0 and re.search(r"^ *20000 .* work$", out, re.MULTILINE), out
    assert (tmp_path / "kept").exists() == keep


@pytest.mark.parametrize("unnamed", [True, False], ids=["unnamed", "named"])
def test_a_daemon_whose_first_thread_ended(unnamed: bool, program: Path, tmp_path: Path) -> None:
    """It goes on when its trace is reported; its state is Z."""
    said, kept, gate = tmp_path / "said", tmp_path / "kept", tmp_path / "gate"
    words = ["trace", "--size", "8M", "-f", "work", "-o", str(kept)]
    words += [str(program), "daemon", str(said)]
    code = SERVER
    if not unnamed:
        code += "server.Server.__init__ = lambda *_: (_ for _ in ()).throw(OSError())\n"
    done = subprocess.run(
        patched_command(code, *words),
        env=child_env(GATE=str(gate)),
        check=False,
        timeout=PATIENCE,
        stdout=subprocess.DEVNULL,
    )
    gate.with_suffix(".open").touch()
    assert done.returncode == 0 and not said.exists(), "it still runs"
    # The child may not have made its first call yet.
    _wait(lambda: any(map(_pid, tmp_path.glob("kept.*"))))
    (file,) = tmp_path.glob("kept.*")
    _wait(lambda: (said.exists() and said.read_text() != "") or not _runs(_pid(file)))
    assert said.read_text() == "worked to its end\n"
    assert (entries(file), lost(file)) == (1 + 1500 * 40, 0)


def _pid(file: Path) -> int:
    """As its header has it; 0 before there is one."""
    with file.open("rb") as held:
        header = held.read(108)
    return int.from_bytes(header[104:108], "little")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_more_processes_than_descriptors(program: Path, tmp_path: Path) -> None:
    """Files of those that ended get their names while the others run."""
    words = ["trace", "-f", "work", "-o", str(tmp_path / "kept"), str(program), "fork", "50", "2"]
    subprocess.run(
        patched_command(f"{SERVER}server.MAX_DESCRIPTORS = 8", *words),
        env=child_env(),
        check=True,
        timeout=PATIENCE,
        stdout=subprocess.DEVNULL,
    )
    assert [entries(file) for file in sorted(tmp_path.glob("kept*"))] == [0, *[2] * 50]


@pytest.mark.parametrize("hard", [500, 40])
def test_more_files_than_descriptors(hard: int, program: Path, tmp_path: Path) -> None:
    """The report takes what the limit may be raised to; what is too much costs no recording."""
    kept = tmp_path / "kept"
    words = ["trace", "-f", "work", "-o", str(kept), "--format", "profile", str(program)]
    code = f"import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (40, {hard}))"
    done = subprocess.run(
        patched_command(code, *words, "fork", "60", "2"),
        env=child_env(),
        check=False,
        timeout=PATIENCE,
        capture_output=True,
        text=True,
    )
    assert sum(entries(file) for file in tmp_path.glob("kept*")) == 120
    if hard == 500:
        assert done.returncode == 0 and re.search(r"^ *120 .* work$", done.stdout, re.MULTILINE)
    else:
        assert done.returncode == 125 and done.stderr.count("\n") == 1
        assert done.stderr.endswith(
            ": cannot read: Too many open files; raise the limit of open files (`ulimit -n`)\n"
        )


def test_the_folder_goes_away(program: Path, tmp_path: Path) -> None:
    """The program takes it away itself."""
    folder = tmp_path / "folder"
    folder.mkdir()
    done = ftpatch_process("trace", "-f", "work", "-o", folder / "kept", program, "rmdir", folder)
    assert (done.code, folder.exists()) == (125, False)
    assert done.err == f"ftpatch: {folder}/kept: the recording is lost: No such file or directory\n"


@pytest.mark.parametrize("way", ["traced", "probed"])
def test_patched_programs_that_it_starts(way: str, program: Path, tmp_path: Path) -> None:
    """Their traces stay theirs, and keep nobody from the report."""
    other, kept = tmp_path / way, tmp_path / "kept"
    words = ["--tracer", "function_graph", "-f", "work"] if way == "traced" else ["p:x work"]
    verb = "enable" if way == "traced" else "probe"
    assert ftpatch_process(verb, program, *words, "-o", tmp_path / "first").code == 0
    (tmp_path / "first").rename(other)
    source = tmp_path / "starts.c"
    source.write_text("#include <stdlib.h>\nint main(int n, char **v) { return system(v[1]); }\n")
    pads = ["-O1", "-fpatchable-function-entry=5"]
    subprocess.run(["gcc", *pads, source, "-o", tmp_path / "starts"], check=True)
    command: list[str | Path] = ["--format", "profile", tmp_path / "starts", f"{other} calls 3"]
    done = ftpatch_process("trace", "-o", kept, *command)
    assert done.code == 0, done.err
    found = re.findall(r"^ +(\d+) .* (\w+)$", done.out, re.MULTILINE)
    both = [("1", "main"), ("3", "work")]  # of both processes together, and then of each
    assert found == (both + both if way == "traced" else both[:1])
    (file,) = tmp_path.glob("kept.*")
    assert ftpatch_process("report", file).code == 0
    assert ftpatch_process("report", file, "--json").json[-1] and str(other) == _image(file)
    done = ftpatch_process("trace", *command)
    told = f"ftpatch: {other}: recorded by another tracer; use -o FILE to keep it\n"
    assert (done.code, done.err) == (0, "" if way == "traced" else told)


def _image(file: Path) -> str:
    """As its header has it."""
    return file.read_bytes()[256:1280].rstrip(b"\0").decode()


def _children(pid: int) -> list[str]:
    """Of all its threads; one may end while its list is read."""
    words: list[str] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            words += file.read_text().split()
    return words


def test_trace_is_killed(program: Path, tmp_path: Path) -> None:
    """The program is not."""
    with subprocess.Popen(
        ftpatch_command("trace", program, "fork", "60", "2000"),
        env=child_env(TMPDIR=str(tmp_path)),
        stdout=subprocess.PIPE,
    ) as running:
        until = time.monotonic() + 30
        while not (children := _children(running.pid)):
            assert time.monotonic() < until
            time.sleep(0.01)
        time.sleep(0.1)
        running.kill()
        running.communicate(timeout=60)
    # A shell would have waited for it: now only its end can be seen, and that nothing cored.
    for child in children:
        while _runs(int(child)):
            assert time.monotonic() < until
            time.sleep(0.01)
    for copy in program.parent.glob(".prog.ftpatch.*"):
        copy.unlink()


def test_a_program_that_is_killed(traced: Path, tmp_path: Path) -> None:
    """What it recorded is in the file."""
    with _midway([traced, "slow", "200", "100"], tmp_path, **_recording(tmp_path)) as running:
        running.send_signal(signal.SIGKILL)
    assert running.returncode == -signal.SIGKILL
    assert entries(tmp_path / "trace") == BEFORE_GATE * 100


LEASED = """
import fcntl, os, sys
from pathlib import Path
from ftpatch.tracer.recordings import TraceFiles
trace, program = map(Path, sys.argv[1:])
with TraceFiles(trace, program, program):
    held = os.open(program, os.O_RDONLY)
    fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    try:
        os.open(program, os.O_WRONLY | os.O_NONBLOCK)
    except BlockingIOError:
        print("broken")
"""


def test_a_lease_that_is_broken_ends_nobody(program: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copy(program, tmp_path / "copy"))
    words = [sys.executable, "-c", LEASED, str(tmp_path / "trace"), str(copy)]
    env = child_env()
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "broken\n"), done.stderr
