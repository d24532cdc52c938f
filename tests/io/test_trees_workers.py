# SPDX-License-Identifier: MIT
"""Trees on several processors: the same as on one, and what becomes of a worker that dies."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from tests.support.command import PATIENCE, Result, child_env, ftpatch, patched_command
from tests.support.loose_trees import contents, forest

NUMBER = 40
"""Modules, for three batches of sixteen."""
COMMANDS = (
    ["status", "--json"],
    ["check", "--json"],
    ["disable", "--in-place", "--json"],
    ["enable", "--in-place", "--json", "--to", "my_tracer", "-f", "*[02468]_*"],
    ["disable", "--in-place", "--json", "-f", "nosuch"],
    ["enable", "--in-place"],
    ["undo", "--json"],
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return forest(tmp_path / "tree", NUMBER)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_same_as_on_one(command: list[str], tree: Path, tmp_path: Path) -> None:
    """Output, in its order, exit code and files."""
    path = tree / "part1/m007.ko"
    path.write_bytes(path.read_bytes()[:200])
    if command[0] in ("check", "undo"):
        few = ["--to", "printk", "--keep-records"]
        assert ftpatch("enable", *few, tree, "--in-place").code == 2
    twin = forest(tmp_path / "twin", 0)
    subprocess.run(["cp", "-a", str(tree), str(twin)], check=True)
    results = []
    for root, processors in ((tree, {0}), (twin, {0, 1})):
        with mock.patch("os.sched_getaffinity", return_value=processors):
            results.append(ftpatch(*command, root))
    alone, shared = results
    assert alone.code == shared.code
    for text, other in ((alone.out, shared.out), (alone.err, shared.err)):
        text = re.sub(r"\d+\.\d\d seconds", "N seconds", text)
        assert re.sub(r"\d+\.\d\d seconds", "N seconds", other).replace("/twin", "/tree") == text
    assert contents(tree) == contents(twin)
    assert alone.out or alone.err.count("\n") == 1


def _script(tree: Path, output: Path, work: str, *options: str) -> list[str]:
    """A command whose worker, at the module m020, does ``work`` first; on two processors."""
    script = (
        "import os, signal, time\n"
        "import ftpatch.api.tree_update as update_tree\n"
        "prepare = update_tree.prepare\n"
        "def at_last(path, *rest, **more):\n"
        "    if path.name == 'm020.ko':\n"
        f"        {work}\n"
        "    return prepare(path, *rest, **more)\n"
        "update_tree.prepare = at_last\n"
        "os.sched_getaffinity = lambda _: {0, 1}\n"
    )
    return patched_command(script, "disable", tree, "-o", output, *options)


def _run(command: list[str]) -> Result:
    done = subprocess.run(
        command,
        env=child_env(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def _workers(output: Path) -> list[int]:
    """Processes whose command line names this output."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(output).encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def _whole(tree: Path, output: Path) -> None:
    """What is in the output is as it would be, whatever happened meanwhile, and nobody is left."""
    end = time.monotonic() + PATIENCE
    while _workers(output):
        assert time.monotonic() < end
        time.sleep(0.1)
    found = contents(output)
    reference = output.parent / "reference"
    assert ftpatch("disable", tree, "-o", reference).code == 0
    assert found.items() <= contents(reference).items()


@pytest.mark.parametrize("number", ["SIGKILL", "SIGSEGV"])
def test_a_worker_that_dies(number: str, tree: Path) -> None:
    """One line says so, and how much is not done."""
    output = tree.parent / "output"
    result = _run(_script(tree, output, f"os.kill(os.getpid(), signal.{number})"))
    assert result.code == 2 and result.err.count("\n") == 1
    assert "a worker process died" in result.err and "may be incomplete" in result.err
    _whole(tree, output)


def test_a_worker_out_of_memory(tree: Path) -> None:
    """That is of the one module; the others are done."""
    output = tree.parent / "output"
    result = _run(_script(tree, output, "raise MemoryError"))
    assert result.code == 2
    assert result.err == f"ftpatch: {tree}/part2/m020.ko: out of memory\n"
    assert f"{NUMBER} modules, {NUMBER - 1} with sites, 1 bad" in result.out
    _whole(tree, output)


def test_a_mistake_in_a_worker(tree: Path) -> None:
    """No traceback, here as elsewhere."""
    output = tree.parent / "output"
    result = _run(_script(tree, output, "raise KeyError('mistake')"))
    assert result.code == 2 and result.err.count("\n") == 1
    assert "internal error: KeyError: 'mistake'" in result.err
    _whole(tree, output)


@pytest.fixture
def waiting(tree: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A command one of whose workers waits, while the other has finished a batch."""
    output = tree.parent / "output"
    with subprocess.Popen(
        _script(tree, output, f"time.sleep({2 * PATIENCE})"),
        env=child_env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            end = time.monotonic() + PATIENCE
            while len(list(output.glob("*/*.ko"))) < 20:
                assert time.monotonic() < end
                time.sleep(0.1)
            time.sleep(0.3)
            yield process, output
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("group", [False, True], ids=["process", "group"])
def test_an_interrupt(
    number: signal.Signals,
    group: bool,
    waiting: tuple[subprocess.Popen[str], Path],
    tree: Path,
) -> None:
    """From a terminal it reaches the workers as well: still one line."""
    process, output = waiting
    (os.killpg if group else os.kill)(process.pid, number)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number and not out
    assert err == "ftpatch: interrupted; files written so far are kept\n"
    _whole(tree, output)


def test_workers_end_with_their_parent(
    waiting: tuple[subprocess.Popen[str], Path], tree: Path
) -> None:
    """Even if nothing tells it to end."""
    process, output = waiting
    assert len(_workers(output)) == 3
    process.kill()
    process.communicate(timeout=PATIENCE)
    _whole(tree, output)


def test_a_file_that_goes_away(tree: Path) -> None:
    """Between the walk and the work."""
    output = tree.parent / "output"
    result = _run(_script(tree, output, "path.unlink()"))
    assert result.code == 2
    assert result.err == (
        f"ftpatch: {tree}/part2/m020.ko: cannot read: No such file or directory\n"
    )
    _whole(tree, output)
