# SPDX-License-Identifier: MIT
"""Filters of ``trace`` that match nothing: said before the program runs, where that is known."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch, ftpatch_process
from tests.support.padded import padded

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
)
PLAIN = """
#include <stdio.h>
int parse(int n) { return n ? parse(n - 1) + 1 : 0; }
int main(void) { puts("ran"); return parse(3); }
"""
STARTER = """
#include <stdio.h>
#include <unistd.h>
int begin(void) { return 3; }
int main(int argc, char **argv) {
    puts("ran");
    fflush(stdout);
    if (argc > 1)
        execv(argv[1], argv + 1);
    return begin();
}
"""
UNKNOWN = "matches no function that is traced"


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (["-F", "prase"], "did you mean parse?"),
        (["-F", "parse", "-F", "nothing*"], "see `ftpatch list`"),
        (["--trigger", "prase@on"], "did you mean parse?"),
        (["-f", "main", "-F", "parse"], "see `ftpatch list`"),
        (["-F", "puts@plt"], "see `ftpatch list`"),
        (["--libcalls", "-F", "ptus@plt"], "did you mean puts@plt?"),
    ],
    ids=lambda words: "-".join(words) if isinstance(words, list) else "",
)
@pytest.mark.parametrize("link", ["dynamic", "static"])
def test_a_name_that_nothing_traced_has(
    tmp_path: Path, options: list[str], hint: str, link: str
) -> None:
    if link == "static" and "--libcalls" in options:
        pytest.skip("a static program has none")
    prog = padded(tmp_path, PLAIN, "-O0", *(["-static"] if link == "static" else []))
    before = sorted(tmp_path.iterdir())
    done = ftpatch_process("trace", *options, prog)
    assert (done.code, done.out) == (125, "")
    assert UNKNOWN in done.err and hint in done.err
    assert len(done.err.splitlines()) == 1 and sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "options", [["-F", "parse"], ["-F", "p*e"], ["--trigger", "parse@off"], ["-F", "!main"]]
)
def test_a_name_that_something_traced_has(tmp_path: Path, options: list[str]) -> None:
    done = ftpatch_process("trace", *options, padded(tmp_path, PLAIN, "-O0"))
    assert (done.code, done.err) == (3, "") and done.out.startswith("ran\n")


def test_a_library_call_and_a_stripped_program(tmp_path: Path) -> None:
    prog = padded(tmp_path, PLAIN, "-O0")
    done = ftpatch_process("trace", "--libcalls", "-F", "puts@plt", prog)
    assert done.code == 3 and "puts@plt();" in done.out and not done.err
    subprocess.run(["strip", str(prog)], check=True)
    done = ftpatch_process("trace", "-F", "0x*", prog)
    assert done.code == 3 and "0x" in done.out, done


def test_a_function_of_a_program_that_this_one_starts(tmp_path: Path) -> None:
    """It has a tracer of its own, and its name is known only when it has run."""
    inner = padded(tmp_path, PLAIN, "-O0")
    traced = tmp_path / "inner"
    assert not ftpatch("enable", inner, "--tracer", "function_graph", "-o", traced).code
    outer = padded(tmp_path, STARTER, "-O0")
    done = ftpatch_process("trace", "-F", "parse", outer, traced)
    assert done.code == 3 and done.out.startswith("ran\nran\n") and "parse() {" in done.out
    assert f"{outer}: filter 'parse' {UNKNOWN}" in done.err, "but that was said before"
    done = ftpatch_process("trace", "-F", "prase", outer, traced)
    assert done.code == 125 and "matches no function in the trace" in done.err


def _marked(folder: Path) -> Path:
    """A program that leaves a file behind."""
    text = '#include <stdio.h>\nint main(void) { fclose(fopen("ran", "w")); return 0; }\n'
    return padded(folder, text)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-o", "/proc/x"], "/proc/x: cannot write"),
        (["-o", "none/x"], "none/x: cannot write"),
        (["-o", "x" * 252], "the name is too long: the traces of children are FILE.PID"),
        (["-o", "x" * 255], "the name is too long"),
        (["-o", "x" * 256], "File name too long"),
        (["--report", "profile=/proc/x"], "/proc/x: cannot write"),
        (["--report", "profile=" + "x" * 256], "File name too long"),
        (["--report", "uftrace=" + "x" * 256], "cannot write: File name too long"),
        (["-o", "none/x", "-F", "main", "--tracer", "function"], "none/x: cannot write"),
        (["--report", "profile=none/x", "-F", "x"], "none/x: cannot write"),
    ],
    ids=lambda words: "".join(words)[:24] if isinstance(words, list) else "",
)
def test_an_output_that_cannot_be(tmp_path: Path, options: list[str], said: str) -> None:
    """It is said before the program runs, and before anything is said of filters."""
    prog = _marked(tmp_path)
    done = ftpatch_process("trace", *options, prog, cwd=tmp_path)
    assert done.code == 125 and said in done.err, done
    assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "ran").exists()


def test_the_longest_name_has_room_for_those_of_children(tmp_path: Path) -> None:
    limit = int(Path("/proc/sys/kernel/pid_max").read_text())
    longest = "x" * (255 - 1 - len(str(limit)))
    text = "#include <unistd.h>\n#include <sys/wait.h>\nint half(int n) { return n / 2; }\n"
    text += "int main(void) { if (!fork()) _exit(half(4)); wait(0); return half(6); }\n"
    prog = padded(tmp_path, text, "-O0")
    done = ftpatch_process("trace", "-o", longest, prog, cwd=tmp_path)
    assert (done.code, done.err) == (3, "")
    kept = sorted(path.name for path in tmp_path.glob("x*"))
    assert kept[0] == longest and kept[1].startswith(f"{longest}.") and len(kept) == 2


def test_an_output_of_a_report_comes_before_its_filters(tmp_path: Path) -> None:
    prog = _marked(tmp_path)
    kept = ["-o", "kept", "--tracer", "function"]
    assert not ftpatch_process("trace", *kept, prog, cwd=tmp_path).code
    done = ftpatch("report", tmp_path / "kept", "-F", "main", "-o", tmp_path / "none" / "x")
    assert done.code == 2 and "none/x: cannot write: No such file or directory" in done.err
    done = ftpatch("report", tmp_path / "kept", "-F", "main", "-o", tmp_path / "x")
    assert done.code == 2 and "does not record returns" in done.err
    assert not list(tmp_path.glob(".ftpatch*"))
