# SPDX-License-Identifier: MIT
"""``trace`` and ``report`` on a terminal: nothing that nobody could read."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import termios
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.command import PATIENCE, child_env, ftpatch_command, ftpatch_process
from tests.support.padded import padded
from tests.support.terminals import shown_text

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
)
FUNCTIONS = 60
PROGRAM = "#include <stdlib.h>\n" + "".join(
    f'__attribute__((noinline)) int f{n}_{"x" * n}(int n) {{ __asm__ volatile(""); return n; }}\n'
    for n in range(FUNCTIONS)
)
PROGRAM += "__attribute__((noinline)) int fib(int n)\n"
PROGRAM += "{ return n < 2 ? n : fib(n - 1) + fib(n - 2); }\n"
PROGRAM += "int main(int argc, char **argv) { int n = atoi(argv[1]), s = fib(n); if (n > 2) {"
PROGRAM += "".join(f"s += f{n}_{'x' * n}(n);" for n in range(FUNCTIONS))
PROGRAM += "} return s ? 3 : 4; }\n"
HEADER = ["#", "Self", "Total", "Calls", "Function"]


@dataclass(frozen=True)
class Seen:
    """Exit code, and what stood on the terminal."""

    code: int
    lines: list[str]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Calls fib(N), and then, for N above 2, sixty functions; ends with 3."""
    return padded(tmp_path_factory.mktemp("prog"), PROGRAM)


def _on_terminal(
    *words: str | Path, folder: Path, size: tuple[int, int] = (24, 80), **environment: str | None
) -> Seen:
    """Run it with a terminal of so many lines and columns."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("4H", *size, 0, 0))
    shown = bytearray()

    def read() -> None:
        try:
            while part := os.read(parent, 1 << 16):
                shown.extend(part)
        except OSError:  # nobody has it open any more
            pass

    reader = threading.Thread(target=read)
    reader.start()
    wanted = {"LINES": None, "COLUMNS": None, "TERM": "xterm", "PAGER": "", **environment}
    every = {**child_env(), **wanted}
    env = {name: text for name, text in every.items() if text is not None}
    done = subprocess.run(
        ftpatch_command(*words), env=env, cwd=folder, stdin=child, stdout=child, stderr=child,
        check=False, timeout=PATIENCE,
    )  # fmt: skip
    os.close(child)
    reader.join(60)
    os.close(parent)
    return Seen(done.returncode, shown_text(bytes(shown)).splitlines())


def _pager(folder: Path, script: str = 'cat >"$0.got"') -> str:
    path = folder / "pager"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def _timeless(text: str) -> list[str]:
    """The calls of a graph, without times and threads."""
    return [line.split("|", 1)[1].strip() for line in text.splitlines() if ") " in line]


@pytest.mark.parametrize("size", [(24, 80), (50, 132), (14, 80)])
def test_a_long_graph_is_summed_up(size: tuple[int, int], compiled: Path, tmp_path: Path) -> None:
    """fib(15) makes 1973 calls: nobody would read 4000 lines."""
    seen = _on_terminal("trace", compiled, "15", folder=tmp_path, size=size)
    assert seen.code == 3
    calls = f"{1973 + 1 + FUNCTIONS} calls of {FUNCTIONS + 2} functions"
    assert seen.lines[0] == f"# {calls}, by self time"
    assert seen.lines[2].split() == HEADER
    assert len(seen.lines) < size[0] and max(map(len, seen.lines)) <= size[1]
    rows = [line.split() for line in seen.lines[4:] if not line.startswith("#")]
    assert [float(row[0]) for row in rows] == sorted((float(row[0]) for row in rows), reverse=True)
    assert all(row[1] == row[3] == "us" for row in rows), "one unit, as in ftrace"
    hits = {row[-1].rstrip("…"): int(row[-2]) for row in rows}
    assert hits["fib"] == 1973 and len(rows) >= 5
    last = seen.lines[-1]
    assert last == "# Recording not kept: use -o FILE; for every call, --format function_graph"
    rest = next(line for line in seen.lines if line.startswith("# and "))
    assert rest == f"# and {FUNCTIONS + 2 - len(rows)} functions more"


def test_a_short_graph_is_shown(compiled: Path, tmp_path: Path) -> None:
    seen = _on_terminal("trace", compiled, "2", folder=tmp_path)
    assert seen.code == 3 and seen.lines[0] == "# tracer: function_graph"
    calls = _timeless("\n".join(seen.lines))
    pager = _pager(tmp_path)
    low = _on_terminal("trace", compiled, "2", folder=tmp_path, size=(5, 80), PAGER=pager)
    assert _timeless("\n".join(low.lines)) == calls, "a pager has to be asked for"
    assert calls == ["main() {", "fib() {", "fib();", "fib();", "} /* fib */", "} /* main */"]


def test_filters_shorten_it(compiled: Path, tmp_path: Path) -> None:
    """What is left of a long recording is short enough."""
    seen = _on_terminal("trace", "-F", "f3_*", compiled, "15", folder=tmp_path)
    assert seen.code == 3 and _timeless("\n".join(seen.lines)) == ["f3_xxx();"]


@pytest.mark.parametrize("tracer", ["function", "function_profile"])
def test_of_other_tracers(tracer: str, compiled: Path, tmp_path: Path) -> None:
    words = ("trace", "--tracer", tracer, compiled, "15")
    seen = _on_terminal(*words, folder=tmp_path, size=(24, 80))
    if tracer == "function_profile":  # not longer than what is shown of any report
        assert seen.lines[0].split() == ["Hit", "Time", "Avg", "Self", "Function"]
        return
    assert seen.lines[2].split() == HEADER and seen.lines[4].split() == ["-", "-", "1973", "fib"]
    assert seen.lines[-1].endswith("--format function")


def test_a_kept_recording_is_named(compiled: Path, tmp_path: Path) -> None:
    seen = _on_terminal("trace", "-o", "kept", compiled, "15", folder=tmp_path)
    command = "ftpatch report kept --format function_graph"
    assert seen.lines[-1] == f"# Every call: {command}"
    whole = ftpatch_process(*command.split()[1:], cwd=tmp_path)
    assert len(_timeless(whole.out)) > 2000


def test_a_report_that_was_asked_for_is_paged(compiled: Path, tmp_path: Path) -> None:
    piped = ftpatch_process("trace", "--format", "function_graph", compiled, "9")
    words = ("trace", "--format", "function_graph", compiled, "9")
    seen = _on_terminal(*words, folder=tmp_path, PAGER=_pager(tmp_path))
    assert (seen.code, seen.lines) == (3, [])
    paged = (tmp_path / "pager.got").read_text()
    assert _timeless(paged) == _timeless(piped.out) and len(_timeless(paged)) > 100
    assert paged.startswith("# tracer: function_graph\n")
    (tmp_path / "pager.got").unlink()
    short = ("trace", "--format", "function_graph", compiled, "2")
    seen = _on_terminal(*short, folder=tmp_path, PAGER=_pager(tmp_path))
    assert seen.lines[0] == "# tracer: function_graph", "it fits"
    dumb = _on_terminal(*words, folder=tmp_path, PAGER=_pager(tmp_path), TERM="dumb")
    assert len(dumb.lines) > 100
    result = ftpatch_process(*words, env={"PAGER": _pager(tmp_path), "TERM": "xterm"})
    assert len(_timeless(result.out)) > 100, "standard output is no terminal"
    assert not (tmp_path / "pager.got").exists()


def test_a_pager_that_ends_early(compiled: Path, tmp_path: Path) -> None:
    """It is no error: somebody has seen enough."""
    words = ("trace", "--format", "json", compiled, "20")
    pager = _pager(tmp_path, 'head -2 >"$0.got"')
    seen = _on_terminal(*words, folder=tmp_path, PAGER=pager)
    assert (seen.code, seen.lines) == (3, [])
    assert (tmp_path / "pager.got").read_text().count("\n") == 2


@pytest.mark.parametrize("pager", ["", "cat", "/nonexistent/pager", "'"])
def test_without_a_pager(pager: str, compiled: Path, tmp_path: Path) -> None:
    words = ("trace", "--format", "json", compiled, "9")
    seen = _on_terminal(*words, folder=tmp_path, PAGER=pager)
    assert seen.code == 3 and len(seen.lines) > 100
    assert all(re.match(r'\{"pid": ', line) for line in seen.lines)


def test_the_usual_pager_is_less(compiled: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    assert ftpatch_process("trace", "-o", kept, "--format", "json", compiled, "9").code == 3
    Path(_pager(tmp_path, 'echo "$@" >"$0.words"; cat >"$0.got"')).rename(tmp_path / "less")
    path = f"{tmp_path}:{os.environ['PATH']}"
    seen = _on_terminal("report", "--no-tui", kept, folder=tmp_path, PATH=path, PAGER=None)
    assert (seen.code, seen.lines) == (0, [])
    assert (tmp_path / "less.words").read_text() == "-RF\n"
    assert len(_timeless((tmp_path / "less.got").read_text())) > 100
