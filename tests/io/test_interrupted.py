# SPDX-License-Identifier: MIT
"""Every signal that ends a process, at every call by which a file is made: what is said is so, the
file is the old one or the new one, and nothing else is left."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ftpatch.cli import app
from ftpatch.cli.signals import handle_signals
from ftpatch.io.cleanup import CLEANUP, ENDING
from ftpatch.io.tree import BATCH
from tests.support.command import (
    PATIENCE,
    Result,
    child_env,
    ftpatch,
    ftpatch_command,
    ftpatch_process,
    patched_command,
)
from tests.support.loose_trees import contents, forest
from tests.support.samples import sample
from tests.support.sampling import FULL

Copied = Callable[[str], Path]
CALLS = (
    *("link", "unlink", "rename", "replace", "fsync", "fdatasync", "ftruncate", "pwrite", "open"),
    *("fchmod", "fchown", "copy_file_range", "removexattr", "mkdir", "rmdir", "setxattr"),
)
WAYS = {
    "new": ["enable"],
    "force": ["enable", "--force"],
    "in-place": ["enable", "--in-place"],
    "undo": ["undo"],
    "report": ["check", "--write-baseline"],
}
MOST = 200
"""Calls that no command comes to."""
WITHOUT = "O_TMPFILE refused"


def _interrupted(
    command: list[str], number: int, moment: int, after: bool, unnamed: bool = True
) -> tuple[Result, bool]:
    """Run a command in a fork, which the signal meets before or after its call ``moment``; and
    whether there were as many."""
    out, err = os.memfd_create("out"), os.memfd_create("err")
    child = os.fork()
    if child == 0:
        try:
            os.dup2(out, 1)
            os.dup2(err, 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            met = [0]

            def wrap(name: str) -> None:
                call = getattr(os, name)

                def wrapped(*args: object, **more: object) -> object:
                    flags = args[1] if name == "open" else 0
                    if name == "open" and not int(str(flags)) & (os.O_CREAT | os.O_TMPFILE):
                        return call(*args, **more)
                    if not unnamed and int(str(flags)) & os.O_TMPFILE == os.O_TMPFILE:
                        raise OSError(95, WITHOUT)
                    met[0] += 1
                    here = met[0] == moment
                    if here and not after:
                        os.kill(os.getpid(), number)
                    try:
                        return call(*args, **more)
                    finally:
                        if here and after:
                            os.kill(os.getpid(), number)

                setattr(os, name, wrapped)

            os.fsync = os.fdatasync = lambda _: None  # type: ignore[assignment]
            for name in CALLS:
                wrap(name)
            for each in ENDING:  # whatever the tests run under
                signal.signal(each, signal.SIG_DFL)
            handle_signals()
            CLEANUP.name, CLEANUP.appeared, CLEANUP.many = None, False, False
            sys.argv = ["ftpatch", *command]
            code = app._run()
            sys.stdout.flush()
            os._exit(code if met[0] < moment else 99)
        finally:
            os._exit(98)
    _, status = os.waitpid(child, 0)
    texts = []
    for fd in (out, err):
        texts.append(os.pread(fd, 1 << 16, 0).decode())
        os.close(fd)
    code = os.waitstatus_to_exitcode(status)
    return Result(code, *texts), code not in (0, 1)


def _begin(folder: Path, way: str) -> tuple[list[str], Path, Path]:
    """The command, its output, and the input."""
    folder.mkdir()
    path = folder / "pad"
    path.write_bytes(sample("pad").data)
    path.chmod(0o755)
    output = path if way in ("in-place", "undo") else folder / "pad.ftpatch"
    verb, *options = WAYS[way]
    if way == "force":
        output.write_bytes(b"before")
    if way == "undo":
        assert ftpatch("enable", "--in-place", path).code == 0
    if way == "report":
        output = folder / "baseline"
        options.append(str(output))
    return [verb, *options, str(path)], output, path


def _state(output: Path) -> bytes | None:
    return output.read_bytes() if output.exists() else None


@pytest.mark.scaled
@pytest.mark.parametrize(
    ("way", "unnamed"), [*((way, True) for way in WAYS), ("in-place", False), ("new", False)]
)
def test_every_signal_at_every_call(way: str, unnamed: bool, tmp_path: Path) -> None:
    numbers = list(ENDING)
    random.Random(way).shuffle(numbers)
    command, output, _ = _begin(tmp_path / "whole", way)
    before = _state(output)
    assert ftpatch(*command).code in (0, 1)
    after = _state(output)
    assert after != before
    said: set[str] = set()
    for moment in range(1, MOST):
        for late in (False, True) if unnamed or FULL else (True,):
            folder = tmp_path / f"{moment}{late}"
            command, output, _ = _begin(folder, way)
            names = {p.name for p in folder.iterdir()}
            number = numbers[(2 * moment + late) % len(numbers)]
            result, met = _interrupted(command, number, moment, late, unnamed)
            if not met:
                assert len(said) == 2
                return
            assert result.code == 128 + number, (moment, late, number, result)
            written = _state(output) == after
            assert written or _state(output) == before
            word = "the output is written" if written else "nothing was written"
            if number == signal.SIGPIPE:
                line = f"ftpatch: standard output: Broken pipe; {word}\n" if written else ""
            else:
                line = f"ftpatch: interrupted; {word}\n"
            assert result.err == line, (moment, late, number, result)
            said.add(word)
            expected = names | ({output.name} if written else set())
            assert {p.name for p in folder.iterdir()} == expected
    pytest.fail("no end")


@pytest.mark.parametrize("unnamed", [True, False], ids=["O_TMPFILE", "named"])
@pytest.mark.parametrize("way", ["in-place", "force", "report"])
def test_what_a_kill_leaves_the_next_command_takes_away(
    way: str, unnamed: bool, tmp_path: Path
) -> None:
    left = 0
    for moment in range(1, MOST):
        folder = tmp_path / str(moment)
        command, output, path = _begin(folder, way)
        names = {p.name for p in folder.iterdir()}
        result, met = _interrupted(command, signal.SIGKILL, moment, True, unnamed)
        if not met:
            break
        assert result.code == -signal.SIGKILL and result.err == ""
        found = {p.name for p in folder.iterdir()} - names - {output.name}
        assert all(name.startswith(".ftpatch.") for name in found)
        left += len(found)
        assert ftpatch("enable", path, "-o", folder / "next").code in (0, 1)
        assert {p.name for p in folder.iterdir()} <= names | {output.name, "next"}
    assert left


def test_what_has_an_owner_stays(copy_of: Copied) -> None:
    """Whether the other is of this machine or not: a lock tells, not a number."""
    from ftpatch.io.temporary import lock, spare

    path = copy_of("pad")
    ours, theirs = spare(path.parent), path.with_name(".ftpatch.notes")
    theirs.write_text("not one of ours")
    held = os.open(ours, os.O_RDWR | os.O_CREAT, 0o600)
    lock(held)
    link = spare(path.parent)
    link.symlink_to(path)
    for there in (True, False):
        assert ftpatch_process("disable", path, "--force").code == 0
        assert ours.exists() == there and theirs.exists() and link.is_symlink() and path.exists()
        path.with_name("pad.ftpatch").unlink()
        if there:
            os.close(held)


def test_a_reader_that_goes_away_before_the_summary(copy_of: Copied) -> None:
    path = copy_of("pad")
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(
        ftpatch_command("enable", str(path)),
        env=child_env(),
        stdout=writes,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writes)
    assert done.returncode == 128 + signal.SIGPIPE
    assert done.stderr == "ftpatch: standard output: Broken pipe; the output is written\n"


NUMBER = 34
TREES = {
    "in-place": ["disable", "TREE", "--in-place"],
    "mirror": ["disable", "TREE", "-o", "TREE.out"],
    "undo": ["undo", "TREE"],
}


def _tree_command(tree: Path, way: str) -> subprocess.Popen[str]:
    """On two processors, and slow where a file gets its name, of which a mark tells. No worker
    comes to the end of its batch: somebody ends it before, however late."""
    script = (
        "import os, signal, sys, time\n"
        "from ftpatch.io.output import Copy\n"
        "signal.signal(signal.SIGQUIT, signal.SIG_DFL)\n"
        "os.fsync = os.fdatasync = lambda _: None\n"
        "first, rename, appear, times = os.getpid(), Copy._rename, Copy.appear, []\n"
        "def slow(self, *names):\n"
        f"    open({str(_mark(tree))!r}, 'w').close()\n"
        "    time.sleep(0.02)\n"
        "    rename(self, *names)\n"
        "    time.sleep(0.02)\n"
        "def wait(self):\n"
        "    times.append(os.getpid() != first)\n"
        f"    time.sleep({2 * PATIENCE} if sum(times) > {BATCH - 4} else 0)\n"
        "    appear(self)\n"
        "Copy._rename, Copy.appear = slow, wait\n"
        "os.sched_getaffinity = lambda _: {0, 1}\n"
    )
    return subprocess.Popen(
        patched_command(script, *(word.replace("TREE", str(tree)) for word in TREES[way])),
        env=child_env(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def trees(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    made: list[Path] = []

    def make(way: str) -> Path:
        made.append(forest(tmp_path / f"tree{len(made)}", NUMBER))
        if way == "undo":
            assert ftpatch("disable", made[-1], "--in-place").code == 0
        return made[-1]

    yield make


def _leftovers(folder: Path) -> list[Path]:
    return list(folder.rglob(".ftpatch.*"))


def _mark(tree: Path) -> Path:
    return tree.with_name(f"{tree.name}.mark")


def _wait_for(tree: Path) -> None:
    """Until a file is about to get its name."""
    end = time.monotonic() + PATIENCE
    while not _mark(tree).exists():
        assert time.monotonic() < end
        time.sleep(0.002)


NOT_SENT = {signal.SIGINT, signal.SIGXFSZ}
"""A shell's background job ignores the first; Python the second, so that it is told as EFBIG."""
SENT = [number for number in ENDING if number not in NOT_SENT]


@pytest.mark.scaled
@pytest.mark.parametrize(
    ("way", "number"),
    # Every signal, to one way of writing a tree after the other: their handler is the same.
    [(list(TREES)[place % len(TREES)], number) for place, number in enumerate(SENT)]
    if FULL
    else [("in-place", signal.SIGHUP), ("mirror", signal.SIGQUIT), ("undo", signal.SIGUSR1)],
)
def test_trees(way: str, number: int, trees: Callable[[str], Path]) -> None:
    """What the workers are making goes away before the command ends."""
    tree = trees(way)
    files = {name: {value} for name, value in contents(tree).items()}
    with _tree_command(tree, way) as process:
        _wait_for(tree)
        time.sleep(random.Random(f"{way}{number}").random() / 10)
        process.send_signal(number)
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait(PATIENCE) == 128 + number
    assert _leftovers(tree.parent) == []
    output = tree.parent / (tree.name + ".out") if way == "mirror" else tree
    now = contents(output)
    time.sleep(0.2)
    assert contents(output) == now, "workers go on"
    word = "standard output: Broken pipe" if number == signal.SIGPIPE else "interrupted"
    if "nothing was written" in said:  # it came before the first of them, on a busy machine
        assert said == f"ftpatch: {word}; nothing was written\n"
        assert now == ({} if way == "mirror" else {name: only for name, (only,) in files.items()})
        return
    assert said == f"ftpatch: {word}; files written so far are kept\n"
    whole = forest(tree.parent / "whole", NUMBER)
    if way != "undo":
        assert ftpatch("disable", whole, "--in-place").code == 0
    for name, value in contents(whole).items():
        files.setdefault(name, set()).add(value)
    assert all(value in files[name] for name, value in now.items())


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR2, signal.SIGKILL])
def test_a_worker_that_is_ended(number: int, trees: Callable[[str], Path]) -> None:
    """Its own file goes away; after a kill, by the next command."""
    tree = trees("in-place")
    with _tree_command(tree, "in-place") as process:
        _wait_for(tree)
        path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        workers = [int(word) for word in path.read_text().split()]
        os.kill(workers[0], number)
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait(PATIENCE) == 2
    assert "a worker process died" in said and said.count("\n") == 1
    if number == signal.SIGKILL:
        assert ftpatch("enable", tree, "--in-place", "--to", "printk").code == 0
    assert _leftovers(tree) == []


PROGRAM = """
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) int twice(int n) { return 2 * n; }
int main(int argc, char **argv) { if (argc > 1) { puts("runs"); fflush(stdout); sleep(600); }
    return twice(argc) == 0; }
"""


def test_what_a_killed_trace_leaves(tmp_path: Path) -> None:
    """A copy beside the program and a folder, which the next trace takes away; not another's."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    source, program, folder = tmp_path / "p.c", tmp_path / "bin" / "p", tmp_path / "tmp"
    source.write_text(PROGRAM)
    program.parent.mkdir()
    folder.mkdir()
    pads = "-fpatchable-function-entry=5"
    subprocess.run(["gcc", "-O1", pads, str(source), "-o", str(program)], check=True)
    script = "import ftpatch.io.temporary\nftpatch.io.temporary.SETTLED = 0\n"
    environment = child_env(TMPDIR=str(folder))

    def left() -> set[Path]:
        return {p for p in (*program.parent.iterdir(), *folder.iterdir()) if p != program}

    running = []
    for _ in range(2):
        process = subprocess.Popen(
            patched_command(script, "trace", program, "wait"),
            env=environment,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None and process.stdout.readline() == b"runs\n"
        running.append((process, left()))
    first = running[0][1]
    second = left() - first
    assert len(first) == len(second) == 2, "both are there"
    running[0][0].kill()
    running[0][0].wait()
    command = patched_command(script, "trace", program)
    done = subprocess.run(command, env=environment, check=False)
    assert done.returncode == 0
    assert left() == second
    for process, _ in running:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
